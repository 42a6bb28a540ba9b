//! Metrics of authentication.

use metrics::{counter, describe_counter};
use strum::VariantArray as _;

use crate::IdentityError;

/// Requests that were refused because their caller could not be authenticated, by `reason`.
const REFUSED: &str = "mooring_authentication_refused_total";
/// Attempts to read the issuer's keys, or the API keys, by `outcome`.
const KEYS_READ: &str = "mooring_token_keys_read_total";

/// The outcome of an attempt to read the issuer's keys, or the API keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum KeysRead {
    /// They were read.
    Ok,
    /// They were not; those that were read before stay in use.
    Failed,
}

/// Registers the descriptions of the metrics, and sets the counters to zero.
pub fn describe_metrics() {
    describe_counter!(REFUSED, "Requests without a valid identity, by reason");
    for reason in IdentityError::reasons() {
        counter!(REFUSED, "reason" => reason).absolute(0);
    }
    describe_counter!(
        KEYS_READ,
        "Attempts to read the keys of the issuer, or the API keys, by outcome"
    );
    for outcome in KeysRead::VARIANTS {
        counter!(KEYS_READ, "outcome" => <&'static str>::from(outcome)).absolute(0);
    }
}

pub(crate) fn refused(error: IdentityError) {
    counter!(REFUSED, "reason" => error.reason()).increment(1);
}

pub(crate) fn keys_read(outcome: KeysRead) {
    counter!(KEYS_READ, "outcome" => <&'static str>::from(outcome)).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_documented() {
        const PAGE: &str = include_str!("../../../docs/metrics.md");
        for name in [REFUSED, KEYS_READ] {
            assert!(PAGE.contains(name), "{name}");
        }
        for reason in IdentityError::reasons() {
            assert!(PAGE.contains(&format!("`{reason}`")), "{reason}");
        }
    }
}
