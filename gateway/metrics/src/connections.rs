//! The metrics of client connections, and of requests that are refused or answered late for their number.

use metrics::{counter, describe_counter};
use strum::VariantArray as _;

/// Client connections that were closed before they were served, by `reason`.
const REFUSED: &str = "mooring_client_connections_refused_total";

/// Requests beyond a limit of their user, by `limit`.
const REQUESTS_REFUSED: &str = "mooring_requests_refused_total";

/// Delayed replies to unauthenticated senders, by `reply`.
const REPLIES_DELAYED: &str = "mooring_replies_delayed_total";

/// The limits of users that are settings.
const USER_LIMITS: [&str; 4] = [
    "listen.requests_per_user_per_minute",
    "listen.calls_per_user_at_once",
    "affinity.initializes_per_minute",
    "affinity.max_sessions_per_principal",
];

/// Every metric of this file.
#[cfg(test)]
pub(super) const ALL: [&str; 3] = [REFUSED, REQUESTS_REFUSED, REPLIES_DELAYED];

pub(super) fn describe() {
    describe_counter!(
        REFUSED,
        "Client connections that were closed before they were served, by reason"
    );
    describe_counter!(
        REQUESTS_REFUSED,
        "Requests beyond a limit of their user, by limit"
    );
    for limit in USER_LIMITS {
        counter!(REQUESTS_REFUSED, "limit" => limit).absolute(0);
    }
    describe_counter!(
        REPLIES_DELAYED,
        "Replies to unknown senders that were delayed for their number, by kind"
    );
    for reply in StrangerReply::VARIANTS.iter().copied() {
        counter!(REPLIES_DELAYED, "reply" => <&'static str>::from(reply)).absolute(0);
    }
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

/// The kind of a reply to an unauthenticated sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StrangerReply {
    /// The refusal of a request.
    Refusal,
    /// A public reply.
    Public,
}

/// A client connection was closed before it was served.
pub fn client_connection_refused(reason: ConnectionRefusal) {
    counter!(REFUSED, "reason" => <&'static str>::from(reason)).increment(1);
}

/// A request was refused, because its user is at this limit.
pub fn requests_refused(limit: &'static str) {
    counter!(REQUESTS_REFUSED, "limit" => limit).increment(1);
}

/// A reply to an unauthenticated sender was delayed.
pub fn reply_delayed(reply: StrangerReply) {
    counter!(REPLIES_DELAYED, "reply" => <&'static str>::from(reply)).increment(1);
}
