//! Metrics of forwarding between gateways.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::Verdict;

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

/// The outcome of a request to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// It began to reply.
    Served,
    /// It returned a verdict.
    Declined(Verdict),
    /// The server at the announced address has no certificate of the fleet.
    Unverified,
    /// Another gateway or boot of the fleet is at the announced address.
    OtherGateway,
    /// The address refuses connections.
    Refused,
    /// Connecting failed for another reason.
    Unreachable,
    /// The connection broke.
    Broken,
    /// It did not reply in time.
    TimedOut,
    /// The request does not fit into a message to a peer.
    TooLarge,
}

impl Forwarded {
    /// The value of the label.
    #[must_use]
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Declined(verdict) => verdict.as_str(),
            Self::Unverified => "unverified",
            Self::OtherGateway => "other_gateway",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Broken => "broken",
            Self::TimedOut => "timed_out",
            Self::TooLarge => "too_large",
        }
    }
}

/// Records a request to a peer.
pub(super) fn forward(outcome: Forwarded, took: Duration) {
    histogram!(FORWARD_SECONDS, "outcome" => outcome.as_str()).record(took.as_secs_f64());
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
