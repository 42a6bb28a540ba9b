//! Metrics of the last contact with each configured upstream server, and of the tokens for them.

use metrics::{counter, gauge};
use strum::VariantArray as _;

use super::{Contact, ContactOutcome, Readiness};

mooring_metrics::metrics! {
    /// Registers the descriptions of the metrics.
    pub fn describe_metrics;
    /// Time of the last contact with the server in Unix seconds; 0 before the first.
    LAST_CONTACT_SECONDS = gauge("mooring_server_last_contact_timestamp_seconds");
    /// 1 for the outcome of the last contact with the server, 0 for the others.
    LAST_CONTACT = gauge("mooring_server_last_contact");
    /// 1 for whether the server answers this gateway's probes, 0 for the other states.
    READINESS = gauge("mooring_server_readiness");
    /// Instances of the server that operators have parked.
    PARKED = gauge("mooring_server_instances_parked");
    /// Attempts to fetch the gateway's token for a server, by outcome.
    TOKENS_FETCHED = counter("mooring_upstream_tokens_fetched_total").zero("outcome", TokenFetch::VARIANTS);
    /// Exchanges of callers' tokens for tokens of a server, by outcome.
    TOKENS_EXCHANGED = counter("mooring_upstream_tokens_exchanged_total").zero("outcome", TokenExchange::VARIANTS);
}

/// The outcome of an attempt to fetch a token.
#[derive(Clone, Copy, Debug, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum TokenFetch {
    /// There is a new token.
    Ok,
    /// There is none.
    Failed,
}

/// An attempt to fetch a token has ended.
pub(crate) fn token_fetched(outcome: TokenFetch) {
    counter!(TOKENS_FETCHED, "outcome" => <&'static str>::from(outcome)).increment(1);
}

/// The outcome of an exchange of a caller's token.
#[derive(Clone, Copy, Debug, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum TokenExchange {
    /// There is a token for the caller.
    Ok,
    /// The authorization server refused.
    Refused,
    /// It gave no answer, or none that can be used.
    Failed,
}

/// An exchange has ended.
pub(crate) fn token_exchanged(outcome: TokenExchange) {
    counter!(TOKENS_EXCHANGED, "outcome" => <&'static str>::from(outcome)).increment(1);
}

/// Sets the gauges of a server.
#[allow(
    clippy::cast_precision_loss,
    reason = "milliseconds since 1970 and counts of instances are below 2^52"
)]
pub(crate) fn set_server_state(
    server: &str,
    last: Option<&Contact>,
    readiness: Readiness,
    parked: usize,
) {
    let seconds = last.map_or(0.0, |last| last.at_ms as f64 / 1_000.0);
    gauge!(LAST_CONTACT_SECONDS, "server" => server.to_owned()).set(seconds);
    let met = last.map(Contact::outcome);
    for &outcome in ContactOutcome::VARIANTS {
        let value = if met == Some(outcome) { 1.0 } else { 0.0 };
        gauge!(LAST_CONTACT, "server" => server.to_owned(), "outcome" => <&'static str>::from(outcome))
            .set(value);
    }
    gauge!(PARKED, "server" => server.to_owned()).set(parked as f64);
    for &state in Readiness::VARIANTS {
        let value = if state == readiness { 1.0 } else { 0.0 };
        gauge!(READINESS, "server" => server.to_owned(), "state" => <&'static str>::from(state))
            .set(value);
    }
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
