//! The fence: a gateway whose heartbeat has not reached the store for a while stops using its connections, before a
//! peer may count it as dead.
//!
//! Invariant: the validity of a heartbeat starts when it is sent, so it never ends later than in the store; after a
//! lapse nothing is used until the store has confirmed what this gateway still owns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether this gateway may use what it owns.
#[derive(Debug)]
pub struct Fence {
    since: Instant,
    /// Validity of an acknowledged heartbeat: two thirds of its lifetime in the store.
    valid_for: Duration,
    /// When the last acknowledged heartbeat was sent, in milliseconds after `since`, plus one; 0 for none.
    acknowledged: AtomicU64,
}

/// The time at which a heartbeat is sent.
#[derive(Clone, Copy, Debug)]
pub struct BeatTime(Instant);

impl BeatTime {
    /// The current time.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }
}

impl Fence {
    /// Closed until the first heartbeat is acknowledged. `beat_ttl` is its lifetime in the store.
    #[must_use]
    pub(crate) fn new(beat_ttl: Duration) -> Self {
        Self {
            since: Instant::now(),
            valid_for: beat_ttl * 2 / 3,
            acknowledged: AtomicU64::new(0),
        }
    }

    /// Whether this gateway may use what it owns now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open_at(Instant::now())
    }

    fn is_open_at(&self, now: Instant) -> bool {
        match self.acknowledged.load(Ordering::Acquire) {
            0 => false,
            at => now < self.since + Duration::from_millis(at - 1) + self.valid_for,
        }
    }

    /// Records an acknowledged heartbeat, once this gateway owns exactly what the store says.
    pub fn acknowledged(&self, sent: BeatTime) {
        let at = sent.0.saturating_duration_since(self.since).as_millis();
        let at = u64::try_from(at).unwrap_or(u64::MAX - 1).saturating_add(1);
        self.acknowledged.fetch_max(at, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_valid_for_two_thirds_of_its_lifetime() {
        let fence = Fence::new(Duration::from_millis(1500));
        let start = fence.since;
        let after = |ms: u64| start + Duration::from_millis(ms);
        assert!(!fence.is_open_at(start), "nothing was acknowledged");
        fence.acknowledged(BeatTime(after(100)));
        assert!(fence.is_open_at(after(1099)));
        assert!(!fence.is_open_at(after(1100)));
        fence.acknowledged(BeatTime(after(600)));
        assert!(fence.is_open_at(after(1100)));
        // A late acknowledgment of an earlier heartbeat changes nothing.
        fence.acknowledged(BeatTime(after(200)));
        assert!(fence.is_open_at(after(1599)));
    }
}
