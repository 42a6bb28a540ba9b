//! Requests for an upstream server: dispatches them by whether their session is stateful.
//!
//! If no setting decides, only `initialize` depends on what this gateway has learned about the server. A later request
//! with a session id belongs to a stateful session; one without uses the pool, which then shares no upstream session
//! that has an id. Invariant: gateways that have learned different things about a server can serve each other's
//! clients.

use bytes::Bytes;

use super::endpoint::{UpstreamContext, is_initialize};
use super::{stateful, stateless};
use mooring_protocol::header::{MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_protocol::{Message, Reply, Revision};
use mooring_settings::Affinity;
use mooring_upstream::Statefulness;

/// Serves one message.
pub(super) async fn post(
    context: &UpstreamContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let is_stateful = if is_initialize(message) {
        begins_stateful(context)
    } else {
        continues_stateful(context)
    };
    if is_stateful {
        stateful::post(context, body, message, revision).await
    } else {
        stateless::post(context, body, message, revision).await
    }
}

/// Serves a stream of messages that answer no request.
pub(super) async fn get(context: &UpstreamContext) -> Reply {
    if continues_stateful(context) {
        stateful::get(context).await
    } else {
        stateless::get(context)
    }
}

/// Ends the session at its client's request.
pub(super) async fn delete(context: &UpstreamContext) -> Reply {
    if continues_stateful(context) {
        stateful::delete(context).await
    } else {
        stateless::delete(context)
    }
}

/// Whether an `initialize` begins a stateful session. A session that began with a stream is always stateful.
fn begins_stateful(context: &UpstreamContext) -> bool {
    let server = &context.server;
    server.keeps_new_sessions()
        || (server.affinity == Affinity::ByServer && context.begun.is_some())
}

/// Whether a later request belongs to a stateful session.
fn continues_stateful(context: &UpstreamContext) -> bool {
    match context.server.affinity {
        Affinity::Kept => true,
        Affinity::Off => false,
        Affinity::ByServer => {
            let names_session = [MCP_SESSION_ID, X_MCP_SESSION_ID]
                .iter()
                .any(|name| context.headers.contains_key(name));
            names_session || context.server.statefulness() == Statefulness::Stateful
        }
    }
}
