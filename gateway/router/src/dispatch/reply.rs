//! From a delivered response to the client's reply.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio_util::sync::CancellationToken;

use super::deliver::DeliveryResult;
use super::event_relay::{Audience, Caller, EventRelay, PendingRequest, StreamOrigin};
use super::relay::{Relay, RelayMode, ReplyGuards};
use super::seals::Seals;
use crate::affinity::{RebindNotice, Session};
use crate::pooled::ServerRequestResponder;
use mooring_protocol::envelope::{Message, Sender};
use mooring_protocol::header::X_ACCEL_BUFFERING;
use mooring_protocol::ids::Epoch;
use mooring_protocol::stream::StreamRewriter;
use mooring_protocol::{Event, mark, rewrite_down};
use mooring_upstream::{
    Answer, ExchangeError, ReceivedResponse, Reply, Server, is_event_stream, read_whole,
};

/// Why the body of a reply broke off.
#[derive(Debug, thiserror::Error)]
#[error("the reply broke off")]
pub struct BodyError(#[source] pub(super) Box<dyn std::error::Error + Send + Sync>);

impl BodyError {
    /// Keeps the cause.
    pub fn new(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(cause))
    }
}

/// The body of a reply, as it arrives.
pub type ReplyBody = UnsyncBoxBody<Bytes, BodyError>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// How replies are relayed.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Largest single event, in bytes.
    pub event_bytes_max: usize,
    /// What the ids of servers' requests are sealed with.
    pub seals: Seals,
    /// Cancelled when the worker stops: streams that answer no call then end.
    pub stopping: CancellationToken,
}

/// The reply to a message of a session that is bound.
///
/// # Errors
/// Where a reply that has to be marked cannot be read.
pub async fn relay_call(
    delivered: DeliveryResult,
    caller: Caller,
    pending_request: Option<PendingRequest>,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> Result<Response<ReplyBody>, ExchangeError> {
    let epoch = Epoch(delivered.binding.epoch);
    let marker = (options.seals).marker(&caller.session, &caller.server, epoch);
    let audience = Audience::Bound(marker);
    let response = match delivered.response {
        ReceivedResponse::Whole(answer) => return Ok(whole(&answer, &audience)),
        ReceivedResponse::Streaming(response) => response,
    };
    match delivered.moved {
        Some(moved)
            if !is_event_stream(&response) && answers(&response, pending_request.as_ref()) =>
        {
            marked(response, audience, &moved, &caller).await
        }
        moved if is_event_stream(&response) && response.status().is_success() => {
            let origin = StreamOrigin {
                caller,
                binding: delivered.binding,
            };
            let events = EventRelay::new(audience, options, pending_request, Some(origin), moved);
            Ok(streaming_events(response, events, guards))
        }
        _ => relay(response, audience, pending_request, guards, options).await,
    }
}

/// The reply to a message over an upstream session that clients share.
///
/// # Errors
/// Where an error answer cannot be read.
pub async fn relay_shared(
    received: ReceivedResponse,
    responder: ServerRequestResponder,
    pending_request: Option<PendingRequest>,
    options: &RelayOptions,
) -> Result<Response<ReplyBody>, ExchangeError> {
    match received {
        ReceivedResponse::Whole(answer) => Ok(whole(&answer, &Audience::Shared(responder))),
        ReceivedResponse::Streaming(response) => {
            relay(
                response,
                Audience::Shared(responder),
                pending_request,
                ReplyGuards::default(),
                options,
            )
            .await
        }
    }
}

/// The reply to a GET.
///
/// # Errors
/// Where an error answer cannot be read.
pub async fn relay_stream(
    delivered: DeliveryResult,
    session: &Session,
    server: &Server,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> Result<Response<ReplyBody>, ExchangeError> {
    let epoch = Epoch(delivered.binding.epoch);
    let audience = Audience::Bound(options.seals.marker(session, server, epoch));
    let moved = delivered.moved;
    match delivered.response {
        ReceivedResponse::Whole(answer) => Ok(whole(&answer, &audience)),
        ReceivedResponse::Streaming(response)
            if is_event_stream(&response) && response.status().is_success() =>
        {
            let events = EventRelay::new(audience, options, None, None, moved);
            Ok(streaming_events(response, events, guards))
        }
        ReceivedResponse::Streaming(response) => failed_or_accepted(response, audience).await,
    }
}

/// Whether the response carries the answer of a request.
fn answers(response: &Reply, pending_request: Option<&PendingRequest>) -> bool {
    response.status().is_success() && pending_request.is_some()
}

/// Whether the response says that there is none.
fn is_accepted(response: &Reply) -> bool {
    matches!(
        response.status(),
        StatusCode::ACCEPTED | StatusCode::NO_CONTENT
    )
}

async fn relay(
    response: Reply,
    audience: Audience,
    pending_request: Option<PendingRequest>,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> Result<Response<ReplyBody>, ExchangeError> {
    if is_event_stream(&response) && response.status().is_success() {
        let events = EventRelay::new(audience, options, pending_request, None, None);
        return Ok(streaming_events(response, events, guards));
    }
    if !answers(&response, pending_request.as_ref()) {
        return failed_or_accepted(response, audience).await;
    }
    if is_accepted(&response) {
        // The client would wait for ever for the answer to a request that was only accepted.
        return Err(ExchangeError::NoResponse);
    }
    let mode = RelayMode::Json(StreamRewriter::new());
    Ok(streaming(response, JSON, mode, guards))
}

fn streaming_events(
    response: Reply,
    events: EventRelay,
    guards: ReplyGuards,
) -> Response<ReplyBody> {
    streaming(
        response,
        EVENTS,
        RelayMode::Events(Box::new(events)),
        guards,
    )
}

fn streaming(
    response: Reply,
    content_type: HeaderValue,
    mode: RelayMode,
    guards: ReplyGuards,
) -> Response<ReplyBody> {
    let status = response.status();
    let is_events = matches!(mode, RelayMode::Events(_));
    let relay = Relay::new(response.into_body(), mode, guards);
    let mut reply = Response::new(relay.map_err(BodyError::new).boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    if is_events {
        stream_headers(reply.headers_mut());
    }
    reply
}

/// What keeps proxies on the way from holding events back (nginx, `proxy_buffering`) or storing them.
fn stream_headers(headers: &mut HeaderMap) {
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
}

/// A reply that tells of a move is always events: the warning, then the marked answer.
async fn marked(
    response: Reply,
    audience: Audience,
    moved: &RebindNotice,
    caller: &Caller,
) -> Result<Response<ReplyBody>, ExchangeError> {
    let status = response.status();
    let text = read_whole(response.into_body()).await?;
    let down = undone(&text, &audience);
    let told = moved.told();
    let down = String::from_utf8_lossy(&down);
    let answer = match mark::mark_result(&down, &told) {
        Some(marked) => {
            caller.note_loss_reported(moved).await;
            marked
        }
        None => down.into_owned(),
    };
    let mut body = told.warning_event().to_vec();
    body.extend_from_slice(&Event::message(&answer).encode());
    let mut reply = Response::new(full(Bytes::from(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, EVENTS);
    stream_headers(reply.headers_mut());
    Ok(reply)
}

async fn failed_or_accepted(
    response: Reply,
    audience: Audience,
) -> Result<Response<ReplyBody>, ExchangeError> {
    if is_accepted(&response) {
        // The body of an accepted message is empty by the protocol; reading it frees the connection.
        let _ = response.into_body().collect().await;
        let mut reply = Response::new(full(Bytes::new()));
        *reply.status_mut() = StatusCode::ACCEPTED;
        return Ok(reply);
    }
    let retry_after = response.headers().get(RETRY_AFTER).cloned();
    let answer = Answer {
        status: response.status(),
        upstream_session: None,
        text: read_whole(response.into_body()).await?,
    };
    let mut reply = whole(&answer, &audience);
    if let Some(retry_after) = retry_after {
        reply.headers_mut().insert(RETRY_AFTER, retry_after);
    }
    Ok(reply)
}

/// An error of the upstream, its ids undone where it is a message, as it is otherwise.
fn whole(answer: &Answer, audience: &Audience) -> Response<ReplyBody> {
    let is_message = answer.message().is_some();
    let mut reply = Response::new(full(undone(&answer.text, audience)));
    *reply.status_mut() = passed_status(answer.status);
    let content_type = if is_message {
        JSON
    } else {
        HeaderValue::from_static("text/plain; charset=utf-8")
    };
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply
}

/// What an upstream's status means to the client. Upstream credentials are the gateway's, so that they are refused is
/// nothing the client could mend; a 404 would tell it that its own session is gone; a redirect would send it away from
/// the gateway, and a switch of protocols is none that the gateway could follow.
fn passed_status(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED => StatusCode::BAD_GATEWAY,
        status if status.is_redirection() || status.is_informational() => StatusCode::BAD_GATEWAY,
        status => status,
    }
}

fn undone(text: &Bytes, audience: &Audience) -> Bytes {
    Message::parse(text, Sender::Upstream)
        .ok()
        .and_then(|message| {
            let down = rewrite_down(&message, &audience.marker()).ok()?;
            Some(Bytes::from(down.text.into_owned()))
        })
        .unwrap_or_else(|| text.clone())
}

fn full(text: Bytes) -> ReplyBody {
    Full::new(text)
        .map_err(|never| match never {})
        .boxed_unsync()
}
