//! Since when an instance refuses connections.
//!
//! An instance that restarts refuses connections for a moment, so one refusal is no loss. It is lost when it has
//! refused for `lost_after` without a success in between; this memory lets the second session that meets a dead
//! instance know at once what the first one waited for.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds after the origin at which the first refusal of the present row was seen; 0 while reachable.
#[derive(Debug, Default)]
pub struct Reach(AtomicU64);

impl Reach {
    /// A connection was made.
    pub fn succeeded(&self) {
        // Reading first keeps the common case from writing a cache line that every request shares.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// A connection was refused. Answers for how long that has gone on.
    pub fn refused(&self) -> Duration {
        // Never 0, which means reachable.
        let now = u64::try_from(ORIGIN.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        match self
            .0
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Duration::ZERO,
            Err(since) => Duration::from_millis(now.saturating_sub(since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_ends_the_row_of_refusals() {
        let reach = Reach::default();
        assert_eq!(reach.refused(), Duration::ZERO);
        reach.0.fetch_sub(0, Ordering::Relaxed);
        assert_ne!(reach.0.load(Ordering::Relaxed), 0);
        reach.succeeded();
        assert_eq!(reach.refused(), Duration::ZERO);
    }
}
