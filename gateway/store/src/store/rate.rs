//! A rate limit that the whole fleet shares, by a name of the caller's choosing.

use mooring_session::limits::{RATE_LIMIT_MAX, RATE_WINDOW_MAX, RATE_WINDOW_MIN};
use mooring_session::names::{NameError, Problem};
use mooring_session::refusal::Refusal;
use mooring_session::rules::RateRequest;
use mooring_session::time::Millis;

use super::{Store, on_backend};
use crate::error::StoreError;
use crate::rate::RateReply;

/// Longest name of a rate, in bytes.
const NAME_BYTES_MAX: usize = 512;

impl Store {
    /// Whether a request that counts for `cost` may pass, where `limit` may within any `window`. Gateways over an
    /// embedded file share the rate; while Redis is away, every gateway keeps it for itself.
    ///
    /// # Errors
    /// Refused: `ERR` for a name, limit, window or cost out of its range.
    pub async fn rate(
        &self,
        name: &str,
        limit: u64,
        window: Millis,
        cost: u64,
    ) -> Result<RateReply, StoreError> {
        let request = RateRequest {
            limit,
            window,
            cost,
        };
        check(name, &request).map_err(Refusal::Argument)?;
        on_backend!("SESSION.RATE", self.rate(name, &request))
    }

    /// Whether this is the first time within the window that anybody takes what has this name: in the whole fleet, so
    /// memory never answers in the place of a store that is away.
    ///
    /// # Errors
    /// Refused: `ERR` for a name or window out of its range. Any other: whether it was taken is not known.
    pub async fn take_once(&self, name: &str, window: Millis) -> Result<bool, StoreError> {
        let request = RateRequest {
            limit: 1,
            window,
            cost: 1,
        };
        check(name, &request).map_err(Refusal::Argument)?;
        let rated = on_backend!("SESSION.RATE", self.rate_shared(name, &request))?;
        Ok(rated.allowed)
    }
}

/// The limits of the contract, checked here because the embedded and in-memory stores parse no command.
fn check(name: &str, request: &RateRequest) -> Result<(), NameError> {
    let wrong = |what, problem| Err(NameError { what, problem });
    if name.is_empty() {
        return wrong("rate", Problem::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return wrong("rate", Problem::TooLong(NAME_BYTES_MAX));
    }
    let within = |what, value, least, most| match (least..=most).contains(&value) {
        true => Ok(()),
        false => wrong(what, Problem::Range(least, most)),
    };
    within("LIMIT", request.limit, 1, RATE_LIMIT_MAX)?;
    within(
        "WINDOW",
        request.window.get(),
        RATE_WINDOW_MIN.get(),
        RATE_WINDOW_MAX.get(),
    )?;
    within("COST", request.cost, 1, request.limit)
}
