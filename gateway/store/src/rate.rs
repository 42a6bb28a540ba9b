//! A rate limit that the whole fleet shares, by a name of the caller's choosing.

use std::collections::HashMap;

use mooring_session::limits::{RATE_LIMIT_MAX, RATE_WINDOW_MAX, RATE_WINDOW_MIN};
use mooring_session::names::{NameError, Problem};
use mooring_session::refusal::Refusal;
use mooring_session::rules::{self, RateRequest, TheoreticalArrivalTime};
use mooring_session::time::{Millis, Timestamp};

use super::error::StoreError;
use super::{Store, on_backend};

/// Longest name of a rate, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Most rates in a process's memory. Beyond it those that expire first are dropped.
const RATES_MAX: usize = 10_000;

/// The answer of RATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReply {
    /// Whether the request may pass.
    pub allowed: bool,
    /// How many of cost one could still pass at once.
    pub remaining: u64,
    /// When this request would be allowed; zero if it was.
    pub retry_after: Millis,
}

impl RateReply {
    pub(super) fn of(rated: rules::RateReply) -> Self {
        Self {
            allowed: rated.is_allowed,
            remaining: rated.remaining,
            retry_after: rated.retry_after,
        }
    }
}

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

/// The rates of one process.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<Box<str>, TheoreticalArrivalTime>);

impl Rates {
    pub(super) fn rate(&mut self, name: &str, request: &RateRequest, now: Timestamp) -> RateReply {
        let rated = rules::rate(self.0.get(name).copied(), request, now);
        if let Some(written) = rated.written {
            if self.0.len() >= RATES_MAX && !self.0.contains_key(name) {
                self.make_room(now);
            }
            self.0.insert(name.into(), written);
        }
        RateReply::of(rated)
    }

    fn make_room(&mut self, now: Timestamp) {
        self.0.retain(|_, spent| now < spent.expires_at());
        if self.0.len() < RATES_MAX {
            return;
        }
        let first = self.0.iter().min_by_key(|(_, spent)| spent.expires_at());
        if let Some(name) = first.map(|(name, _)| name.clone()) {
            self.0.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_never_remembers_more_rates_than_its_bound() {
        let mut rates = Rates::default();
        let request = RateRequest {
            limit: 1,
            window: Millis::new(60_000),
            cost: 1,
        };
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        for n in 0..=RATES_MAX as u64 {
            let at = now.plus(Millis::new(n));
            assert!(rates.rate(&format!("r{n}"), &request, at).allowed);
        }
        assert_eq!(rates.0.len(), RATES_MAX);
        // The first one made room, and all others hold.
        assert!(!rates.rate("r1", &request, now).allowed);
        assert!(rates.rate("r0", &request, now).allowed);
    }
}
