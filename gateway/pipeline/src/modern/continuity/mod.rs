//! Requests without a session (MCP 2026-07-28) at a server that keeps sessions: each is served in the session that its key
//! names ([`found_session`]), as one of an earlier revision, and its reply is one of its own revision again ([`reply_bridge`]).
//!
//! Invariants: the server is initialized once for a session, whichever gateways its requests come to; what a server of an
//! earlier revision would have to ask its client is refused by name; and a loss of state is reported as to a client with a
//! session, never hidden.

mod found_session;
mod reply_bridge;
mod session_request;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use mooring_session::names::Principal;

use self::found_session::{FoundSession, find_session, session_of_lists};
use self::reply_bridge::ReplyBridge;
use self::session_request::SessionRequest;
use crate::held_text::into_held;
use crate::request::{Request, UpstreamRequest};
use crate::user_secret::refuse_without_secret;
use crate::{answer, stateful};
use mooring_protocol::bridge::{bridge_request, discovery_result};
use mooring_protocol::{ErrorBody, ErrorKind, Message, Method, Reply, Sender, call};
use mooring_settings::Continuity;
use mooring_upstream::Server;

/// Whether requests without a session are served in one.
pub(crate) fn is_kept(server: &Server) -> bool {
    server.continuity != Continuity::None
}

/// Serves one request.
pub(crate) async fn post(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    if request.server.continuity == Continuity::Principal
        && request.identity.principal == Principal::local()
    {
        let detail = "this server keeps one session for each user, and you are not authenticated (servers.continuity)";
        return answer::detailed(ErrorKind::Forbidden, message.id(), detail);
    }
    if let Some(refusal) = refuse_without_secret(request, message).await {
        return refusal;
    }
    match message.method() {
        Method::ServerDiscover => discover(request, message).await,
        method if is_refused(method, message) => {
            answer::plain(ErrorKind::MethodUnknown, message.id())
        }
        _ => Box::pin(serve(request, body, message)).await,
    }
}

/// Whether a method has no meaning here: those of sessions, which 2026-07-28 does not have, and those of streams and tasks,
/// which servers of earlier revisions have in another form.
fn is_refused(method: Method, message: &Message<'_>) -> bool {
    let is_of_other_era = matches!(
        method,
        Method::Initialize
            | Method::Ping
            | Method::LoggingSetLevel
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe
            | Method::SubscriptionsListen
    );
    let name = message.method_name().unwrap_or_default();
    is_of_other_era || name.starts_with("tasks/")
}

/// Answers `server/discover` from what the server answered to `initialize`.
async fn discover(request: &UpstreamRequest<'_>, message: &Message<'_>) -> Reply {
    let result = match session_of_lists(request, message).await {
        Ok(result) => result,
        Err(reply) => return *reply,
    };
    match (result.as_deref().and_then(discovery_result), message.id()) {
        (Some(result), Some(id)) => {
            Reply::json(StatusCode::OK, call::result(id.as_json(), &result))
        }
        (_, id) => {
            let detail = "its answer to initialize is no result, or could not be stored";
            answer::detailed(ErrorKind::UpstreamInvalid, id, detail)
        }
    }
}

async fn serve(request: &UpstreamRequest<'_>, body: &Bytes, message: &Message<'_>) -> Reply {
    let method = message.method();
    let is_by_handle = request.server.continuity == Continuity::Handle;
    let Some(id) = message.id() else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let bridged = match bridge_request(message, is_by_handle && method == Method::ToolsCall) {
        Ok(bridged) => bridged,
        Err(cause) => {
            let error = ErrorBody::new(ErrorKind::InvalidParams).answering(Some(id));
            return answer::error(&error.detail(cause));
        }
    };
    let text = into_held(Cow::Owned(bridged.text), body, request.usage.messages());
    let text = match text {
        Ok(text) => text,
        Err(cause) => return answer::no_room(cause, Some(id)),
    };
    let sent = match Message::parse(&text, Sender::Client) {
        Ok(sent) => sent,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(Some(id))),
    };
    let found = match find_session(request, message, bridged.session.as_deref()).await {
        Ok(found) => found,
        Err(reply) => return *reply,
    };
    let FoundSession {
        session,
        revision,
        begun,
        key_change,
    } = found;
    let in_session = Arc::new(SessionRequest::new(request, &session, revision));
    let bridge = Arc::new(ReplyBridge {
        method,
        begun,
        lists_argument: is_by_handle,
        log: bridged.log,
        id_json: id.as_json().into(),
        message_bytes_max: request.core.relay.message_bytes_max,
        in_session: Arc::clone(&in_session),
    });
    if request.client_gone.is_cancelled() {
        // Nothing was sent: that was its cancellation (MCP 2026-07-28, transports, "Cancellation").
        return Reply::empty(StatusCode::ACCEPTED);
    }
    let counted = Request {
        call: request.call.clone(),
        entry: request.entry.clone(),
        ..in_session.request.clone()
    };
    let counted = counted.at(request.server);
    let mut served = pin!(stateful::post(&counted, &text, &sent, revision));
    let reply = tokio::select! {
        biased;
        reply = &mut served => reply,
        () = request.client_gone.cancelled() => {
            in_session.cancel(id.as_json()).await;
            served.await
        }
    };
    let reply = match session_request::has_ended(&reply) {
        true => found_session::ended(request, message, &session, bridged.session.is_some()),
        false => bridge.apply(reply).await,
    };
    Reply {
        session_key: reply.session_key.or(key_change),
        ..reply
    }
}
