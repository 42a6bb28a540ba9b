//! The metrics of client connections.

use metrics::{counter, describe_counter};

/// Client connections that were closed as they came, by `reason`.
const REFUSED: &str = "mooring_client_connections_refused_total";

/// Every metric of this file.
#[cfg(test)]
pub(super) const ALL: [&str; 1] = [REFUSED];

pub(super) fn describe() {
    describe_counter!(
        REFUSED,
        "Client connections beyond a limit that were closed, by reason"
    );
    for reason in [ConnectionRefusal::All, ConnectionRefusal::Peer] {
        counter!(REFUSED, "reason" => <&'static str>::from(reason)).absolute(0);
    }
}

/// The limit that a connection is beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ConnectionRefusal {
    /// The limit in all, and the connections kept for health probes are taken too.
    All,
    /// The limit of its address.
    Peer,
}

/// A client connection was closed as it came.
pub fn client_connection_refused(reason: ConnectionRefusal) {
    counter!(REFUSED, "reason" => <&'static str>::from(reason)).increment(1);
}
