//! The exchanges of the last one to two minutes, for operators who look now. The histograms have all since the start.
//!
//! Invariant: two periods for each configured server and instance, however many exchanges there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::ExchangeOutcome;

/// How long a period is. The figures are those of the running one and the one before.
const PERIOD: Duration = Duration::from_secs(60);

/// When the first period began.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Requests of clients at a server, or exchanges with an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExchangeFigures {
    /// Those that have ended.
    pub ended: u64,
    /// Of those, without a result: an error, a failed tool, a status 5xx, a broken connection.
    pub failed: u64,
    /// Of those, with a status 4xx.
    pub refused: u64,
    /// Of those, given up by their reader before the reply.
    pub abandoned: u64,
    /// The time of those that have ended, added up.
    pub total_us: u64,
    /// The time of the longest of them.
    pub slowest_us: u64,
    /// Those that have not ended.
    pub waiting: u64,
}

/// The latest exchanges of a server, or of one instance of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RecentExchanges {
    /// The server.
    pub server: String,
    /// The instance; none for the requests of clients.
    pub instance: Option<String>,
    /// What has happened there.
    pub figures: ExchangeFigures,
}

/// Counts the exchanges of one series.
#[derive(Debug, Default)]
pub(super) struct TrafficCounter {
    waiting: AtomicU64,
    /// The latest period in which an exchange ended, and the one before.
    periods: Mutex<[Period; 2]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Period {
    number: u64,
    figures: ExchangeFigures,
}

impl ExchangeFigures {
    /// Adds those of another gateway, instance or period.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.ended, other.ended),
            (&mut self.failed, other.failed),
            (&mut self.refused, other.refused),
            (&mut self.abandoned, other.abandoned),
            (&mut self.total_us, other.total_us),
            (&mut self.waiting, other.waiting),
        ];
        for (sum, part) in sums {
            *sum = sum.saturating_add(part);
        }
        self.slowest_us = self.slowest_us.max(other.slowest_us);
    }

    /// The mean time of those that have ended.
    #[must_use]
    pub fn mean_us(&self) -> u64 {
        self.total_us.checked_div(self.ended).unwrap_or_default()
    }

    /// Whether nothing has happened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ended == 0 && self.waiting == 0
    }
}

impl TrafficCounter {
    /// One has begun.
    pub(super) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// One does not wait any more.
    pub(super) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// One has ended, at `now`.
    pub(super) fn end(&self, outcome: ExchangeOutcome, took: Duration, now: Instant) {
        self.end_in(period_at(now), outcome, took);
    }

    fn end_in(&self, number: u64, outcome: ExchangeOutcome, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let (failed, refused, abandoned) = match outcome {
            ExchangeOutcome::Ok => (0, 0, 0),
            ExchangeOutcome::Refused => (0, 1, 0),
            ExchangeOutcome::Abandoned | ExchangeOutcome::Unanswered => (0, 0, 1),
            ExchangeOutcome::ToolError
            | ExchangeOutcome::Error
            | ExchangeOutcome::Failed
            | ExchangeOutcome::Broken
            | ExchangeOutcome::NoReply => (1, 0, 0),
        };
        let exchange = ExchangeFigures {
            ended: 1,
            failed,
            refused,
            abandoned,
            total_us: took_us,
            slowest_us: took_us,
            waiting: 0,
        };
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        let [latest, before] = &mut *periods;
        if number > latest.number {
            *before = *latest;
            *latest = Period {
                number,
                figures: ExchangeFigures::default(),
            };
        }
        latest.figures.add(&exchange);
    }

    /// What has happened lately.
    pub(super) fn figures(&self) -> ExchangeFigures {
        self.figures_in(period_at(Instant::now()))
    }

    fn figures_in(&self, number: u64) -> ExchangeFigures {
        let periods = *self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        let mut figures = ExchangeFigures {
            waiting: self.waiting.load(Ordering::Relaxed),
            ..ExchangeFigures::default()
        };
        for period in periods {
            if period.number + 1 >= number {
                figures.add(&period.figures);
            }
        }
        figures
    }
}

/// The time that figures of exchanges cover.
#[must_use]
pub fn recent_time() -> Duration {
    let elapsed = START.elapsed();
    let running = Duration::from_secs(elapsed.as_secs() % PERIOD.as_secs());
    elapsed.min(running + PERIOD)
}

/// The number of the period at this moment: the first one is 1.
fn period_at(now: Instant) -> u64 {
    let since_start = now.saturating_duration_since(*START);
    since_start.as_secs() / PERIOD.as_secs() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_running_period_and_the_one_before() {
        let counter = TrafficCounter::default();
        let second = Duration::from_secs(1);
        counter.end_in(1, ExchangeOutcome::Ok, second);
        counter.end_in(1, ExchangeOutcome::Refused, second * 3);
        counter.end_in(2, ExchangeOutcome::NoReply, second * 2);
        counter.begin();
        let both = ExchangeFigures {
            ended: 3,
            failed: 1,
            refused: 1,
            abandoned: 0,
            total_us: 6_000_000,
            slowest_us: 3_000_000,
            waiting: 1,
        };
        assert_eq!(counter.figures_in(2), both);
        assert_eq!(both.mean_us(), 2_000_000);
        assert_eq!(counter.figures_in(3).ended, 1, "the first one is over");
        assert_eq!(counter.figures_in(4).ended, 0);
        counter.leave();
        assert!(counter.figures_in(4).is_empty());
        // After a pause, the period before is not the one that was counted last.
        counter.end_in(9, ExchangeOutcome::Abandoned, second);
        assert_eq!(counter.figures_in(9).ended, 1);
    }
}
