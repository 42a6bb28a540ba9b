//! Reports dropped messages of a server, in a metric and in a rate-limited log.
//!
//! Invariant: the lines grow with the logarithm of the number of complaints.

use std::fmt::Display;

use mooring_metrics as metrics;

/// Up to this many complaints are all logged; after that, those whose number is a power of two.
const ALL_LOGGED_MAX: u64 = 8;

/// Counts the complaints about one connection or stream.
#[derive(Debug, Default)]
pub struct Complaints(u64);

impl Complaints {
    /// Counts a dropped message and logs it with the reason, subject to the rate limit.
    pub fn add(&mut self, what: &'static str, why: impl Display) {
        self.0 = self.0.saturating_add(1);
        metrics::upstream_message_dropped();
        if self.is_logged() {
            tracing::warn!(complaints = self.0, %why, "{what}");
        }
    }

    const fn is_logged(&self) -> bool {
        self.0 <= ALL_LOGGED_MAX || self.0.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_complaints_log_few_lines() {
        let mut complaints = Complaints::default();
        let logged = (0..10_000).filter(|_| {
            complaints.add("a message was dropped", "a test");
            complaints.is_logged()
        });
        assert_eq!(logged.count(), 8 + 10);
    }
}
