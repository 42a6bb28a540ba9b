//! Metrics of authentication.

use metrics::counter;
use strum::VariantArray as _;

use crate::error::IdentityError;

mooring_metrics::metrics! {
    /// Registers the descriptions of the metrics, and sets the counters to zero.
    pub fn describe_metrics;
    /// Requests that were refused because their caller could not be authenticated, by reason.
    REFUSED = counter("mooring_authentication_refused_total").zero("reason", IdentityError::reasons());
    /// Attempts to read the issuer's keys, or the API keys, by outcome.
    KEYS_READ = counter("mooring_token_keys_read_total").zero("outcome", KeysRead::VARIANTS);
}

/// The outcome of an attempt to read the issuer's keys, or the API keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum KeysRead {
    /// They were read.
    Ok,
    /// They were not; those that were read before stay in use.
    Failed,
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
        for name in ALL {
            assert!(PAGE.contains(name), "{name}");
        }
        for reason in IdentityError::reasons() {
            assert!(PAGE.contains(&format!("`{reason}`")), "{reason}");
        }
    }
}
