//! The fence: a worker whose beat has not reached the store for a while stops using what it owns, before another worker
//! may count it as dead.
//!
//! Invariant: a beat counts from the moment before it was sent, so the store's clock for it never ends earlier than
//! this one; and after a lapse nothing is used again until the store has confirmed what this worker still owns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether this worker may use what it owns.
#[derive(Debug)]
pub struct Fence {
    since: Instant,
    /// How long one acknowledged beat is valid: two thirds of what the store grants it.
    valid_for: Duration,
    /// When the last acknowledged beat was sent, in milliseconds after `since`, plus one; 0: none is good.
    acknowledged: AtomicU64,
}

/// The moment at which a beat is sent.
#[derive(Clone, Copy, Debug)]
pub struct BeatTime(Instant);

impl BeatTime {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }
}

impl Fence {
    /// Closed until the first beat is acknowledged. A beat lasts for `beat_ttl` in the store.
    #[must_use]
    pub(crate) fn new(beat_ttl: Duration) -> Self {
        Self {
            since: Instant::now(),
            valid_for: beat_ttl * 2 / 3,
            acknowledged: AtomicU64::new(0),
        }
    }

    /// Whether this worker may use what it owns, now.
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

    /// A beat was acknowledged, and what this worker holds is what the store says it owns.
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
    fn a_beat_is_valid_for_two_thirds_of_its_life() {
        let fence = Fence::new(Duration::from_millis(1500));
        let start = fence.since;
        let after = |ms: u64| start + Duration::from_millis(ms);
        assert!(!fence.is_open_at(start), "nothing was acknowledged");
        fence.acknowledged(BeatTime(after(100)));
        assert!(fence.is_open_at(after(1099)));
        assert!(!fence.is_open_at(after(1100)));
        fence.acknowledged(BeatTime(after(600)));
        assert!(fence.is_open_at(after(1100)));
        // An answer that comes late says nothing newer.
        fence.acknowledged(BeatTime(after(200)));
        assert!(fence.is_open_at(after(1599)));
    }
}
