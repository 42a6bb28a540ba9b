//! Metrics of forwarding between gateways.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};

use crate::{REFUSAL_REASONS, Verdict};

/// Time from forwarding a request to the head of its reply, by `outcome`.
const FORWARD_SECONDS: &str = "mooring_forward_duration_seconds";
/// Refused requests of peers, by `reason`.
const PEER_REFUSED: &str = "mooring_peer_refused_total";

/// Registers descriptions, and sets the counters to zero so that they appear in the first scrape.
pub fn describe_metrics() {
    describe_histogram!(
        FORWARD_SECONDS,
        "Asking another worker to the head of its reply, by outcome"
    );
    describe_counter!(
        PEER_REFUSED,
        "Requests between workers that were not let in, by reason"
    );
    for reason in REFUSAL_REASONS {
        counter!(PEER_REFUSED, "reason" => reason).absolute(0);
    }
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
        for name in [FORWARD_SECONDS, PEER_REFUSED] {
            assert!(PAGE.contains(name), "{name}");
        }
    }
}
