//! What is wrong with the messages of a server, counted in a metric and logged without flooding the log.
//!
//! Invariant: the lines grow with the logarithm of the number of complaints.

use std::fmt::Display;

use mooring_metrics as metrics;

/// So many complaints are all logged; after that, each one whose number is a power of two.
const ALL_LOGGED_MAX: u64 = 8;

/// Counts what is complained about on one connection or one stream.
#[derive(Debug, Default)]
pub struct Complaints(u64);

impl Complaints {
    /// Logs that something was dropped, and why, unless it was said often enough.
    pub fn add(&mut self, what: &'static str, why: impl Display) {
        self.0 = self.0.saturating_add(1);
        metrics::upstream_message_dropped();
        if self.is_said() {
            tracing::warn!(complaints = self.0, %why, "{what}");
        }
    }

    const fn is_said(&self) -> bool {
        self.0 <= ALL_LOGGED_MAX || self.0.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_complaints_are_few_lines() {
        let mut complaints = Complaints::default();
        let said = (0..10_000).filter(|_| {
            complaints.add("a message was dropped", "a test");
            complaints.is_said()
        });
        assert_eq!(said.count(), 8 + 10);
    }
}
