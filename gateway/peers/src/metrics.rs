//! Metrics of forwarding between gateways.

use std::time::Duration;

use metrics::{counter, histogram};

/// Why requests of peers are refused, as labels.
pub(super) const REFUSAL_REASONS: [&str; 6] = [
    "not_authentic",
    "other_receiver",
    "malformed",
    "truncated",
    "too_large",
    "timed_out",
];

mooring_metrics::metrics! {
    /// Registers descriptions, and sets the counters to zero so that they appear in the first scrape.
    pub fn describe_metrics;
    /// Time from forwarding a request to another worker to the head of its reply, by outcome.
    FORWARD_SECONDS = histogram("mooring_forward_duration_seconds");
    /// Refused requests of peers, by reason.
    PEER_REFUSED = counter("mooring_peer_refused_total").zero("reason", REFUSAL_REASONS);
}

/// Records a request to a peer. `outcome` is one of a fixed set.
pub(super) fn forward(outcome: &'static str, took: Duration) {
    histogram!(FORWARD_SECONDS, "outcome" => outcome).record(took.as_secs_f64());
}

/// Records a refused request of a peer. `reason` is one of a fixed set.
pub(super) fn peer_refused(reason: &'static str) {
    counter!(PEER_REFUSED, "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_documented() {
        const PAGE: &str = include_str!("../../../docs/metrics.md");
        for name in ALL {
            assert!(PAGE.contains(name), "{name}");
        }
    }
}
