//! Requests for an upstream server: over the session's record, or without any.

use bytes::Bytes;

use super::request::{SessionSource, UpstreamRequest, is_initialize};
use super::user_secret::ask_for_secret;
use super::{stateful, stateless};
use mooring_protocol::{Message, Reply, Revision};
use mooring_settings::Affinity;
use mooring_upstream::Statefulness;

/// Serves one message.
pub(crate) async fn post(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if let Some(reply) = ask_for_secret(request, message).await {
        return reply;
    }
    match is_stateful(request, is_initialize(message)) {
        true => stateful::post(request, body, message, revision).await,
        false => Box::pin(stateless::post(request, body, message, revision)).await,
    }
}

/// Opens the stream of messages that answer no request, or of the events after one.
pub(crate) async fn get(request: &UpstreamRequest<'_>) -> Reply {
    match is_stateful(request, false) {
        true => stateful::get(request).await,
        false => stateless::get(),
    }
}

/// Ends the session of the request.
pub(crate) async fn end_session(request: &UpstreamRequest<'_>) -> Reply {
    match is_stateful(request, false) {
        true => stateful::end_session(request).await,
        false => stateless::delete(request),
    }
}

/// Whether a request belongs to a stateful session.
///
/// If no setting decides, only an `initialize` depends on what this gateway has learned about the server. A later
/// request with a session id belongs to a stateful session; one without uses the pool, which then shares no upstream
/// session that has an id. Invariant: gateways that have learned different things about a server can serve each other's
/// clients.
fn is_stateful(request: &UpstreamRequest<'_>, is_initialize: bool) -> bool {
    let server = request.server;
    match (&request.session, server.affinity) {
        (SessionSource::Given(_), _) => true,
        (SessionSource::Begun(_), Affinity::ByServer) if is_initialize => true,
        _ if is_initialize => server.keeps_new_sessions(),
        (_, Affinity::On) => true,
        (_, Affinity::Off) => false,
        (_, Affinity::ByServer) => {
            request.fields.name_session() || server.statefulness() == Statefulness::Stateful
        }
    }
}
