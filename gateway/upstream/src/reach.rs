//! How long an instance has been refusing connections, or been unreachable.
//!
//! A restarting instance refuses connections for a moment, so a single refusal is no loss. An instance is lost once it
//! has refused for `lost_after` without a success in between. The row of refusals is shared by all sessions, so the
//! second session that meets a dead instance need not wait again. A host that vanished refuses nothing: connects time
//! out, and it is lost after [`UNREACHED_LOST_AFTER`].

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long connects may fail without a refusal before the instance counts as lost. Longer than short packet loss or a
/// full accept queue, so that these cost no live session; short enough that, with the probe that follows, a user waits for
/// less than five seconds.
pub const UNREACHED_LOST_AFTER: Duration = Duration::from_secs(3);
/// Failed connects that are further apart belong to separate rows: the state in between is unknown.
const ROW_PAUSE_MAX: Duration = Duration::from_secs(10);

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Times are milliseconds after the origin, plus one; 0 means none.
#[derive(Debug, Default)]
pub struct Reach {
    /// The first refusal of the current row.
    refused_since: AtomicU64,
    /// When the first failed connect of the current row began.
    unreached_since: AtomicU64,
    /// When the last connect failed.
    unreached_last: AtomicU64,
}

impl Reach {
    /// Records an established connection.
    pub fn succeeded(&self) {
        // Reading first avoids writing a shared cache line in the common case.
        for since in [&self.refused_since, &self.unreached_since] {
            if since.load(Ordering::Relaxed) != 0 {
                since.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Records a refused connection. Returns the duration of the row.
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

    /// Records a connect that began at `began` and failed without a refusal. Returns the duration of the row.
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

    /// Whether connects have failed for long enough that the instance counts as lost, and the last failure is recent.
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
    fn failed_connects_form_a_row_until_a_success_or_a_long_pause() {
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
