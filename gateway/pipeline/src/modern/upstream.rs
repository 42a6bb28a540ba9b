//! A request without a session, on its way to an instance of an upstream server and back.
//!
//! Invariants: the headers that repeat fields are made from the message that is sent, so they agree with it whatever was
//! changed in it; and when the client leaves, the connection to the instance closes, which cancels the request there too
//! (MCP 2026-07-28, transports, "Cancellation").

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use http::{HeaderValue, StatusCode};

use super::reply_changes::{self, ReplyChanges};
use super::{caller_of, instance_bound};
use crate::answer;
use crate::client_states::SealScope;
use crate::held_text::into_held;
use crate::map_messages::map_messages;
use crate::request::{Request, UpstreamRequest};
use crate::user_secret::refuse_without_secret;
use mooring_protocol::header::{MCP_METHOD, MCP_NAME};
use mooring_protocol::modern::{encode_mirrored, mirrored_name, subscription_end};
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, Kind, Lane, Message, Method, Reply, ReplyBody, Revision, Sender,
    rewrite_up,
};
use mooring_router::dispatch::relay_shared;
use mooring_upstream::{Outgoing, is_modern_error};

/// Serves one request.
pub(crate) async fn post(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    if let Some(refusal) = refuse_without_secret(request, message).await {
        return refusal;
    }
    let served = forward(request, body, message);
    tokio::select! {
        biased;
        reply = served => reply,
        () = request.client_gone.cancelled() => Reply::empty(StatusCode::ACCEPTED),
    }
}

async fn forward(request: &UpstreamRequest<'_>, body: &Bytes, message: &Message<'_>) -> Reply {
    let scope = SealScope {
        principal: request.identity.principal.clone(),
        server: request.server.id.clone(),
    };
    let mut bound = match instance_bound::bind(request, &scope, message) {
        Ok(bound) => bound,
        Err(reply) => return *reply,
    };
    let opened = bound.text.take().map(Bytes::from);
    let text = opened.as_ref().unwrap_or(body);
    let sent = match &opened {
        Some(text) => Message::parse(text, Sender::Client),
        None => Message::parse(body, Sender::Client),
    };
    let Ok(sent) = sent else {
        return answer::plain(ErrorKind::Internal, message.id());
    };
    let pool = &request.core.pool;
    let Some(pending) = pool.begin_request(message, Lane(rand::random())) else {
        return answer::plain(ErrorKind::InvalidRequest, message.id());
    };
    let up = match rewrite_up(&sent, Some(pending.tag())) {
        Ok(up) => up,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let up = match into_held(up.text, text, request.usage.messages()) {
        Ok(up) => up,
        Err(cause) => return answer::no_room(cause, message.id()),
    };
    let caller = caller_of(request.request);
    let outgoing = Outgoing::post(request.server, up)
        .timed_as(message.method())
        .forwarding(&request.fields.forwarded)
        .on_behalf_of(request.server, &caller)
        .revision(Revision::MODERN.as_str());
    let outgoing = repeat_fields(outgoing, &sent);
    if let Err(reply) = instance_bound::use_up(request, message, &bound).await {
        return *reply;
    }
    let instance = bound.instance.as_ref();
    let pooled = match pool
        .send_sessionless(request.server, instance, &caller, &outgoing)
        .await
    {
        Ok(pooled) => pooled,
        Err(cause) => return answer::pool_error(&cause, message.id()),
    };
    let instance = pooled.responder.instance().clone();
    if let Some(entry) = &request.entry {
        entry.note_instance(&instance);
    }
    let status = pooled.received.status;
    let relay = &request.core.relay;
    let call = request.call.clone();
    let relayed = relay_shared(pooled.received, pooled.responder, pending, call, relay).await;
    let reply = match relayed {
        Ok(reply) => with_status_of_errors(request, status, reply),
        Err(cause) => return answer::exchange(&cause, message.id()),
    };
    if !reply_changes::concern(message) || !status.is_success() {
        return reply;
    }
    let changes = Arc::new(ReplyChanges {
        states: request.core.client_states.clone(),
        scope,
        instance,
        request: body.clone(),
        tasks: bound.tasks,
    });
    let change = move |text| future::ready(changes.apply(text));
    match map_messages(reply, relay.message_bytes_max, change).await {
        Ok(reply) if message.method() == Method::SubscriptionsListen => {
            ended_when_draining(request.request, message, reply)
        }
        Ok(reply) => reply,
        Err(cause) => answer::unread(&cause),
    }
}

/// The request with the headers that repeat its fields.
fn repeat_fields(outgoing: Outgoing, message: &Message<'_>) -> Outgoing {
    let method = message.method_name().unwrap_or_default();
    let outgoing = match HeaderValue::from_str(method) {
        Ok(method) => outgoing.header(MCP_METHOD, method),
        Err(_) => outgoing,
    };
    let name = mirrored_name(message).flatten();
    match name.and_then(|name| encode_mirrored(&name)) {
        Some(name) => outgoing.header(MCP_NAME, name),
        None => outgoing,
    }
}

/// An error with the status that this revision gives it. A server of the other era, whose errors are others, is asked again
/// what it is.
fn with_status_of_errors(
    request: &UpstreamRequest<'_>,
    status: StatusCode,
    mut reply: Reply,
) -> Reply {
    if !status.is_client_error() {
        return reply;
    }
    let code = match &reply.body {
        ReplyBody::Json(text) => Message::parse(text, Sender::Upstream)
            .ok()
            .filter(|message| message.kind() == Kind::Error)
            .and_then(|message| message.outcome().map(code_of)),
        _ => None,
    };
    let is_of_era = code.is_some_and(|(code, is_modern)| {
        is_modern || code == METHOD_NOT_FOUND || code == INVALID_PARAMS
    });
    let says_nothing = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
    );
    if !is_of_era && !says_nothing {
        request.server.era_log.doubt();
    }
    if status == StatusCode::NOT_FOUND && code.is_some_and(|(code, _)| code == METHOD_NOT_FOUND) {
        reply.status = status;
    }
    reply
}

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// The code of an error, given as JSON text, and whether it is one of this era alone.
fn code_of(error: &str) -> (i64, bool) {
    #[derive(serde::Deserialize)]
    struct CodeOnly {
        code: i64,
    }
    let code = serde_json::from_str::<CodeOnly>(error).map_or(0, |error| error.code);
    (code, is_modern_error(error))
}

/// The stream of a subscription, which ends with its result when the gateway leaves the fleet: its client then subscribes
/// at another one.
fn ended_when_draining(request: &Request, message: &Message<'_>, reply: Reply) -> Reply {
    let Some(id) = message.id() else {
        return reply;
    };
    let end = Event::message(subscription_end(id.as_json()));
    let draining = request.core.relay.departure.draining();
    let body = match reply.body {
        ReplyBody::Events(events) => {
            let ended = draining.clone();
            let end = stream::once(async move { ended.is_cancelled().then_some(Ok(end)) });
            let events = events.take_until(draining.cancelled_owned());
            ReplyBody::Events(Box::pin(events.chain(end.filter_map(future::ready))))
        }
        body => body,
    };
    Reply { body, ..reply }
}
