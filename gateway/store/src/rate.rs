//! The answer of a rate limit.

use mooring_session::rules;
use mooring_session::time::Millis;

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
