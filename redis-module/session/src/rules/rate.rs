//! RATE: a rate limit shared by a whole fleet, with the generic cell rate algorithm (GCRA).
//!
//! It stores one time, the *theoretical arrival time*: when everything allowed so far would have been spent at an even
//! pace. It also stores the widest window requested since the rate was last unspent, because a narrower window must not
//! shorten that time. A request passes if its share of the window still fits between now and one window ahead. Windows
//! have no start, so there is no moment at which twice the limit passes.
//!
//! The time is in nanoseconds, because the even pace of a large limit is finer than a millisecond.

use crate::limits::RATE_WINDOW_MAX;
use crate::names::{NameError, parse_integer};
use crate::time::{Millis, Timestamp};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The request of RATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRequest {
    /// How many requests may pass within one window, at once if none passed before. 1 to
    /// [`RATE_LIMIT_MAX`](crate::limits::RATE_LIMIT_MAX).
    pub limit: u64,
    /// How long a window is, up to [`RATE_WINDOW_MAX`](crate::limits::RATE_WINDOW_MAX).
    pub window: Millis,
    /// How many requests this one counts as, 1 to `limit`.
    pub cost: u64,
}

/// The reply of RATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReply {
    /// Whether the request passes.
    pub is_allowed: bool,
    /// What has to be stored, if anything changed.
    pub written: Option<TheoreticalArrivalTime>,
    /// How many of cost one could still pass at once.
    pub remaining: u64,
    /// After which time this request would pass; zero if it passed.
    pub retry_after: Millis,
}

/// When everything allowed so far would have been spent at an even pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TheoreticalArrivalTime {
    /// In nanoseconds since the Unix epoch.
    nanos: u64,
    /// The widest window that was requested meanwhile: the time is at most that far ahead.
    widest: Millis,
}

impl TheoreticalArrivalTime {
    /// Reads the stored form: the nanoseconds and, if it is known, the widest window in milliseconds.
    ///
    /// # Errors
    /// Any other form.
    pub fn decode(value: &[u8]) -> Result<Self, NameError> {
        let number = |value, most| parse_integer("rate record", value, 0, most);
        let mut parts = value.splitn(2, |byte| *byte == b' ');
        let nanos = number(parts.next().unwrap_or_default(), u64::MAX)?;
        let widest = match parts.next() {
            Some(widest) => number(widest, RATE_WINDOW_MAX.get())?,
            None => 0,
        };
        Ok(Self {
            nanos,
            widest: Millis::new(widest),
        })
    }

    /// The stored form.
    #[must_use]
    pub fn encode(self) -> String {
        format!("{} {}", self.nanos, self.widest.get())
    }

    /// When the record no longer has any effect.
    #[must_use]
    pub const fn expires_at(self) -> Timestamp {
        Timestamp::from_unix_ms(self.nanos.div_ceil(NANOS_PER_MILLI))
    }
}

/// Decides whether the request passes.
///
/// A time that is further ahead than the widest requested window was stamped before the wall clock stepped back. It
/// counts as one such window ahead, and a refusal stores it like that: otherwise each request would find it a whole
/// window ahead again, until the clock has caught up. It is not dropped, because callers may use a rate to remember
/// something for one window.
#[must_use]
pub fn rate(
    stored: Option<TheoreticalArrivalTime>,
    request: &RateRequest,
    now: Timestamp,
) -> RateReply {
    let nanos = |window: Millis| window.get().saturating_mul(NANOS_PER_MILLI);
    let now = now.unix_ms().saturating_mul(NANOS_PER_MILLI);
    let stored = stored.filter(|stored| stored.nanos > now);
    let widest = stored.map_or(request.window, |stored| stored.widest.max(request.window));
    let window = nanos(request.window);
    let (ahead, furthest) = (
        now.saturating_add(window),
        now.saturating_add(nanos(widest)),
    );
    let stored = stored.map_or(now, |stored| stored.nanos);
    let before = stored.min(furthest);
    let after = before.saturating_add(share(request, window));
    let is_allowed = after <= ahead;
    let spent = TheoreticalArrivalTime {
        nanos: if is_allowed { after } else { before },
        widest,
    };
    RateReply {
        is_allowed,
        written: (is_allowed || stored > furthest).then_some(spent),
        remaining: remaining(request, window, ahead.saturating_sub(spent.nanos)),
        retry_after: Millis::new(after.saturating_sub(ahead).div_ceil(NANOS_PER_MILLI)),
    }
}

/// The part of the window that the request's cost takes. Rounded down, so that the whole limit fits in one window; with
/// a limit of 100,000 a second, one request in 10,000 too many passes, and with a smaller limit fewer.
fn share(request: &RateRequest, window: u64) -> u64 {
    let share = u128::from(window) * u128::from(request.cost) / u128::from(request.limit.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// How many requests of cost one fit into the rest of the window.
fn remaining(request: &RateRequest, window: u64, left: u64) -> u64 {
    let one = RateRequest {
        cost: 1,
        ..*request
    };
    let share = share(&one, window).max(1);
    (left / share).min(request.limit)
}
