//! The metrics of client connections, and of requests that are refused or answered late for their number.

use metrics::counter;
use strum::VariantArray as _;

metrics! {
    pub(super) fn describe;
    /// Client connections that were closed before they were served, by reason.
    REFUSED = counter("mooring_client_connections_refused_total").zero("reason", ConnectionRefusal::VARIANTS);
    /// Requests beyond a limit of their user, by limit.
    REQUESTS_REFUSED = counter("mooring_requests_refused_total").zero("limit", USER_LIMITS);
    /// Replies to unauthenticated senders that were delayed for their number, by kind.
    REPLIES_DELAYED = counter("mooring_replies_delayed_total").zero("reply", StrangerReply::VARIANTS);
}

/// The limits of users that are settings.
const USER_LIMITS: [&str; 4] = [
    "listen.requests_per_user_per_minute",
    "listen.calls_per_user_at_once",
    "affinity.initializes_per_minute",
    "affinity.max_sessions_per_principal",
];

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
