//! Requests of stateless sessions: without record or store, at any instance.

use bytes::Bytes;
use http::StatusCode;
use sha2::{Digest, Sha256};

use super::answer::with_session_id;
use super::held_text::into_held;
use super::request::{UpstreamRequest, is_initialize};
use super::{answer, stateful};
use mooring_protocol::ids::Lane;
use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Message, Method, Reply, Revision, call, rewrite_up,
};
use mooring_router::dispatch::{READ_MAX, relay_shared};
use mooring_router::pooled::PooledError;
use mooring_upstream::{Caller, HandshakeError, Outgoing};

/// Prefix of session ids here. No state belongs to them, so every id with this prefix is valid.
const STATELESS_PREFIX: &str = "stateless-";

/// Serves one message.
pub(crate) async fn post(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if is_initialize(message) {
        return initialize(request, body, message, revision).await;
    }
    let lane = match &request.fields.session {
        Ok(id) if id.as_str().starts_with(STATELESS_PREFIX) => lane_of(id.as_str()),
        Ok(_) => return answer::plain(ErrorKind::SessionNotFound, message.id()),
        // Clients without a session id get separate lanes too: two of them may use the same request id concurrently.
        Err(ErrorKind::SessionMissing) => Lane(rand::random()),
        Err(kind) => return answer::plain(*kind, message.id()),
    };
    if message.kind() != Kind::Request && message.method() != Method::Cancelled {
        // The gateway made the handshake itself and sends such clients no requests.
        return Reply::empty(StatusCode::ACCEPTED);
    }
    if message.method() == Method::Ping
        && let Some(id) = message.id()
    {
        return Reply::json(StatusCode::OK, call::empty_result(id.as_json()));
    }
    let pool = &request.core.pool;
    let pending = pool.begin_request(message, lane);
    let tag = match &pending {
        Some(pending) => Some(pending.tag()),
        None => pool.find_cancelled(message, lane),
    };
    let up = match rewrite_up(message, tag) {
        Ok(up) => up,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let text = match into_held(up.text, body, request.usage.messages()) {
        Ok(text) => text,
        Err(cause) => return answer::no_room(cause, message.id()),
    };
    let caller = caller_of(request);
    let outgoing = Outgoing::post(request.server, text)
        .timed_as(message.method())
        .forwarding(&request.fields.forwarded)
        .on_behalf_of(request.server, &caller)
        .revision(revision.as_str());
    let Some(pending) = pending else {
        // The instance of a cancelled call is not recorded; the others ignore the unknown id.
        if tag.is_some() {
            pool.notify_all(request.server, &caller, revision.as_str(), &outgoing)
                .await;
        }
        return Reply::empty(StatusCode::ACCEPTED);
    };
    let served = async {
        let sent = pool.send(request.server, &caller, revision.as_str(), &outgoing);
        match sent.await {
            Ok(pooled) => {
                if let Some(entry) = &request.entry {
                    entry.note_instance(pooled.responder.instance());
                }
                relay_shared(
                    pooled.received,
                    pooled.responder,
                    pending,
                    request.call.clone(),
                    &request.core.relay,
                )
                .await
                .unwrap_or_else(|cause| answer::exchange(&cause, message.id()))
            }
            Err(cause) => answer::pool_error(&cause, message.id()),
        }
    };
    // The call of a client that disconnected continues, and is given up after the same time as one with a session.
    let given_up = async {
        request.client_gone.cancelled().await;
        tokio::time::sleep(READ_MAX).await;
    };
    tokio::select! {
        biased;
        reply = served => reply,
        () = given_up => Reply::empty(StatusCode::ACCEPTED),
    }
}

/// Shared upstream sessions have no stream of unrelated messages.
pub(crate) fn get() -> Reply {
    answer::detailed(
        ErrorKind::MethodNotAllowed,
        None,
        "this server keeps no sessions, so it has no GET stream",
    )
}

/// There is no session to end.
pub(crate) fn delete(request: &UpstreamRequest<'_>) -> Reply {
    match &request.fields.session {
        Ok(id) if id.as_str().starts_with(STATELESS_PREFIX) => Reply::empty(StatusCode::NO_CONTENT),
        Ok(_) => answer::plain(ErrorKind::SessionNotFound, None),
        Err(kind) => answer::plain(*kind, None),
    }
}

async fn initialize(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let pool = &request.core.pool;
    let introduced = pool
        .initialize(request.server, &caller_of(request), revision.as_str())
        .await;
    let session = match introduced {
        Ok(session) => session,
        // The server has become stateful since its instances were last probed.
        Err(PooledError::Handshake(HandshakeError::SessionAssigned)) => {
            return stateful::post(request, body, message, revision).await;
        }
        Err(cause) => return answer::pool_error(&cause, message.id()),
    };
    let answer = session.answer.message();
    let result = answer.as_ref().and_then(|answer| answer.outcome());
    let (Some(result), Some(id)) = (result, message.id()) else {
        return answer::plain(ErrorKind::UpstreamInvalid, message.id());
    };
    let text = call::result(id.as_json(), result);
    let reply = Reply::json(StatusCode::OK, text);
    match session.upstream_session {
        Some(_) => {
            let id = format!("{STATELESS_PREFIX}{:032x}", rand::random::<u128>());
            with_session_id(reply, &id)
        }
        None => reply,
    }
}

/// The caller of a request that belongs to no session.
fn caller_of<'a>(request: &UpstreamRequest<'a>) -> Caller<'a> {
    let request = request.request;
    Caller {
        teams: &request.identity.teams,
        token: request.identity.token.as_ref(),
        memory: Some(request.usage.replies()),
        ..Caller::of(&request.identity.principal)
    }
}

/// A lane for the clients of one pooled session, the same at every gateway.
fn lane_of(id: &str) -> Lane {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(id.as_bytes()));
    Lane(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}
