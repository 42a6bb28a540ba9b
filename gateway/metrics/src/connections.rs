//! The metrics of client connections, and of requests that are refused for their number.

use metrics::{counter, describe_counter};
use strum::VariantArray as _;

/// Client connections that were closed before they were served, by `reason`.
const REFUSED: &str = "mooring_client_connections_refused_total";

/// Requests beyond the limit of their user.
const REQUESTS_REFUSED: &str = "mooring_requests_refused_total";

/// Every metric of this file.
#[cfg(test)]
pub(super) const ALL: [&str; 2] = [REFUSED, REQUESTS_REFUSED];

pub(super) fn describe() {
    describe_counter!(
        REFUSED,
        "Client connections that were closed before they were served, by reason"
    );
    describe_counter!(REQUESTS_REFUSED, "Requests beyond the limit of their user");
    counter!(REQUESTS_REFUSED).absolute(0);
    for reason in ConnectionRefusal::VARIANTS.iter().copied() {
        counter!(REFUSED, "reason" => <&'static str>::from(reason)).absolute(0);
    }
}

/// Why a connection was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ConnectionRefusal {
    /// The limit in all, and the connections kept for health probes are taken too.
    All,
    /// The limit of its address.
    Peer,
    /// No limit: the TLS handshake failed or took too long.
    Tls,
}

/// A client connection was closed before it was served.
pub fn client_connection_refused(reason: ConnectionRefusal) {
    counter!(REFUSED, "reason" => <&'static str>::from(reason)).increment(1);
}

/// A request was refused, because its user has sent too many.
pub fn requests_refused() {
    counter!(REQUESTS_REFUSED).increment(1);
}
