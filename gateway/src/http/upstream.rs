//! Requests for an upstream server: whether the session of each is kept.
//!
//! Where no setting says, only an `initialize` follows what this gateway knows of the server. Every later request says for
//! itself: one with a session id belongs to a kept session, and one without goes over the pool, which then shares no
//! upstream session that has an id. Invariant: gateways that know different things of a server serve each other's clients.

use axum::response::Response;
use bytes::Bytes;

use super::endpoint::{Visit, is_initialize};
use super::{kept, unkept};
use mooring_protocol::header::{MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_protocol::{Message, Revision};
use mooring_settings::Affinity;
use mooring_upstream::Statefulness;

/// One message.
pub(super) async fn post(
    visit: &Visit,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Response {
    let is_kept = if is_initialize(message) {
        begins_kept(visit)
    } else {
        continues_kept(visit)
    };
    if is_kept {
        kept::post(visit, body, message, revision).await
    } else {
        unkept::post(visit, body, message, revision).await
    }
}

/// A stream of what answers no request.
pub(super) async fn get(visit: &Visit) -> Response {
    if continues_kept(visit) {
        kept::get(visit).await
    } else {
        unkept::get(visit)
    }
}

/// The client is done.
pub(super) async fn delete(visit: &Visit) -> Response {
    if continues_kept(visit) {
        kept::delete(visit).await
    } else {
        unkept::delete(visit)
    }
}

/// Whether the session that an `initialize` asks for is kept. One that began with a stream always is.
fn begins_kept(visit: &Visit) -> bool {
    let server = &visit.server;
    server.keeps_new_sessions() || (server.affinity == Affinity::ByServer && visit.begun.is_some())
}

/// Whether the session that a later request belongs to is kept.
fn continues_kept(visit: &Visit) -> bool {
    match visit.server.affinity {
        Affinity::Kept => true,
        Affinity::Off => false,
        Affinity::ByServer => {
            let names_session = [MCP_SESSION_ID, X_MCP_SESSION_ID]
                .iter()
                .any(|name| visit.headers.contains_key(name));
            names_session || visit.server.statefulness() == Statefulness::Stateful
        }
    }
}
