//! Since when an instance refuses connections, or cannot be connected to at all.
//!
//! An instance that restarts refuses connections for a moment, so one refusal is no loss. It is lost when it has
//! refused for `lost_after` without a success in between; this memory lets the second session that meets a dead
//! instance know at once what the first one waited for. A host that has vanished refuses nothing: connects to it time out,
//! and it is lost after [`UNREACHED_LOST_AFTER`] of that.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long connects that are neither accepted nor refused go on before the instance counts as lost. Longer than a moment
/// of lost packets or of a full accept queue, which costs a live session nothing.
pub const UNREACHED_LOST_AFTER: Duration = Duration::from_secs(5);
/// Failed connects that are further apart are not one row: nothing is known of the time between.
const ROW_PAUSE_MAX: Duration = Duration::from_secs(10);

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Moments are milliseconds after the origin, plus one; 0 stands for none.
#[derive(Debug, Default)]
pub struct Reach {
    /// The first refusal of the present row.
    refused_since: AtomicU64,
    /// When the first failed connect of the present row began.
    unreached_since: AtomicU64,
    /// When the last connect failed.
    unreached_last: AtomicU64,
}

impl Reach {
    /// A connection was made.
    pub fn succeeded(&self) {
        // Reading first keeps the common case from writing a cache line that every request shares.
        for since in [&self.refused_since, &self.unreached_since] {
            if since.load(Ordering::Relaxed) != 0 {
                since.store(0, Ordering::Relaxed);
            }
        }
    }

    /// A connection was refused. Answers for how long that has gone on.
    pub fn refused(&self) -> Duration {
        let now = moment(Instant::now());
        match self
            .refused_since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Duration::ZERO,
            Err(since) => Duration::from_millis(now.saturating_sub(since)),
        }
    }

    /// A connect that `began` then has just failed without a refusal. Answers for how long that has gone on.
    pub fn unreached(&self, began: Instant) -> Duration {
        self.unreached_until(moment(began), moment(Instant::now()))
    }

    fn unreached_until(&self, began: u64, now: u64) -> Duration {
        let last = self.unreached_last.swap(now, Ordering::Relaxed);
        let mut since = self.unreached_since.load(Ordering::Relaxed);
        if since == 0 || began > last.saturating_add(millis(ROW_PAUSE_MAX)) {
            since = began;
            self.unreached_since.store(began, Ordering::Relaxed);
        }
        Duration::from_millis(now.saturating_sub(since))
    }

    /// Whether connects have failed for so long that it counts as lost, and did so a moment ago.
    #[must_use]
    pub fn is_unreached(&self) -> bool {
        let since = self.unreached_since.load(Ordering::Relaxed);
        let last = self.unreached_last.load(Ordering::Relaxed);
        since != 0
            && last.saturating_sub(since) >= millis(UNREACHED_LOST_AFTER)
            && moment(Instant::now()) <= last.saturating_add(millis(ROW_PAUSE_MAX))
    }
}

fn moment(at: Instant) -> u64 {
    millis(at.saturating_duration_since(*ORIGIN)).saturating_add(1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_ends_the_row_of_refusals() {
        let reach = Reach::default();
        assert_eq!(reach.refused(), Duration::ZERO);
        assert_ne!(reach.refused_since.load(Ordering::Relaxed), 0);
        reach.succeeded();
        assert_eq!(reach.refused(), Duration::ZERO);
    }

    #[test]
    fn failed_connects_are_one_row_until_one_succeeds_or_none_is_tried_for_long() {
        let reach = Reach::default();
        let lasted = |began, now| reach.unreached_until(began, now).as_millis();
        assert_eq!(lasted(1_000, 2_000), 1_000);
        assert_eq!(lasted(2_100, 3_100), 2_100);
        assert_eq!(lasted(13_100, 14_100), 13_100);
        assert_eq!(lasted(24_101, 25_101), 1_000, "a row of its own");
        reach.succeeded();
        assert_eq!(lasted(25_200, 26_200), 1_000);
        assert_eq!(lasted(26_200, 86_200), 61_000, "connects may take long");
    }
}
