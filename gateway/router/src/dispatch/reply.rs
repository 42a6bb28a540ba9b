//! Turns a delivered response into the client's reply.

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use futures_util::stream;
use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::deliver::DeliveryResult;
use super::event_filter::{Audience, Caller, EventFilter, PendingRequest, StreamOrigin};
use super::relay::{EventRelay, JsonRelay, ReplyGuards};
use super::seals::Seals;
use crate::affinity::{RebindNotice, Session};
use crate::pooled::ServerRequestResponder;
use mooring_protocol::envelope::{Message, Sender};
use mooring_protocol::ids::Epoch;
use mooring_protocol::rewrite::into_bytes;
use mooring_protocol::{
    Event, EventStream, Reply, ReplyBody, ReplyError, StreamRewriter, mark, rewrite_down,
};
use mooring_upstream::{ANSWER_BYTES_MAX, ExchangeError, Server};

/// How replies are relayed.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Largest single message, in bytes.
    pub message_bytes_max: usize,
    /// Seals for the ids of server-to-client requests.
    pub seals: Seals,
    /// Cancelled when the gateway stops: streams without an unanswered call then end.
    pub stopping: CancellationToken,
}

/// The reply for the client. Most are there at once; the future of those that have to be read first is boxed, so that a
/// call's own is small.
pub type RelayFuture =
    Either<Ready<Result<Reply, ExchangeError>>, BoxFuture<'static, Result<Reply, ExchangeError>>>;

fn at_once(reply: Result<Reply, ExchangeError>) -> RelayFuture {
    Either::Left(ready(reply))
}

/// The reply to a message of a bound session.
///
/// # Errors
/// A reply that needs a rebind notice cannot be read.
pub fn relay_call(
    delivered: DeliveryResult,
    caller: Caller,
    pending_request: Option<PendingRequest>,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> RelayFuture {
    let epoch = Epoch(delivered.binding.epoch);
    let marker = (options.seals).marker(&caller.session, &caller.server, epoch);
    let audience = Audience::Bound(marker);
    let reply = delivered.reply;
    match (delivered.moved, reply.body) {
        (moved, ReplyBody::Events(events)) if reply.status.is_success() => {
            let origin = StreamOrigin {
                caller,
                binding: delivered.binding,
            };
            let filter = EventFilter::new(audience, pending_request, Some(origin), moved);
            at_once(Ok(relay_events(
                reply.status,
                events,
                filter,
                guards,
                options,
            )))
        }
        (Some(moved), body) if reply.status.is_success() && pending_request.is_some() => {
            let reply = Reply { body, ..reply };
            Either::Right(Box::pin(async move {
                let _until_read = guards;
                marked(reply, audience, &moved, &caller).await
            }))
        }
        (_, body) => {
            let reply = Reply { body, ..reply };
            relay(reply, audience, pending_request, guards, options)
        }
    }
}

/// The reply to a message over a shared upstream session.
///
/// # Errors
/// The body of an error answer cannot be read.
pub fn relay_shared(
    received: Reply,
    responder: ServerRequestResponder,
    pending_request: Option<PendingRequest>,
    options: &RelayOptions,
) -> RelayFuture {
    let (audience, guards) = (Audience::Shared(responder), ReplyGuards::default());
    relay(received, audience, pending_request, guards, options)
}

/// The reply to a GET.
///
/// # Errors
/// The body of an error answer cannot be read.
pub async fn relay_stream(
    delivered: DeliveryResult,
    session: &Session,
    server: &Server,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> Result<Reply, ExchangeError> {
    let epoch = Epoch(delivered.binding.epoch);
    let audience = Audience::Bound(options.seals.marker(session, server, epoch));
    let reply = delivered.reply;
    match reply.body {
        ReplyBody::Events(events) if reply.status.is_success() => {
            let filter = EventFilter::new(audience, None, None, delivered.moved);
            Ok(relay_events(reply.status, events, filter, guards, options))
        }
        body => failed_or_accepted(Reply { body, ..reply }, &audience).await,
    }
}

/// Whether the status says that there is no answer.
fn is_accepted(status: StatusCode) -> bool {
    matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
}

fn relay(
    reply: Reply,
    audience: Audience,
    pending_request: Option<PendingRequest>,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> RelayFuture {
    let status = reply.status;
    let is_answer = status.is_success() && pending_request.is_some();
    at_once(match reply.body {
        ReplyBody::Events(events) if status.is_success() => {
            let filter = EventFilter::new(audience, pending_request, None, None);
            Ok(relay_events(status, events, filter, guards, options))
        }
        // Otherwise the client would wait forever for an answer.
        _ if is_answer && is_accepted(status) => Err(ExchangeError::NoResponse),
        // The upstream is done, so the guards end here.
        ReplyBody::Json(text) if is_answer => {
            let text = StreamRewriter::rewrite(text).map_err(ReplyError::from);
            text.map(|text| Reply::json(status, text))
                .map_err(ExchangeError::from)
        }
        ReplyBody::JsonStream(chunks) if is_answer => {
            let relay = JsonRelay::new(chunks, guards);
            Ok(Reply::new(status, ReplyBody::JsonStream(Box::pin(relay))))
        }
        body => {
            let reply = Reply { body, ..reply };
            return Either::Right(Box::pin(async move {
                let _until_read = guards;
                failed_or_accepted(reply, &audience).await
            }));
        }
    })
}

fn relay_events(
    status: StatusCode,
    events: EventStream,
    filter: EventFilter,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> Reply {
    let relay = EventRelay::new(events, filter, guards, &options.stopping);
    Reply::new(status, ReplyBody::Events(Box::pin(relay)))
}

/// A reply with a rebind notice is always an event stream: the warning, then the marked answer.
async fn marked(
    reply: Reply,
    audience: Audience,
    moved: &RebindNotice,
    caller: &Caller,
) -> Result<Reply, ExchangeError> {
    let text = reply.body.read_text(ANSWER_BYTES_MAX).await?;
    let down = restored(&text, &audience);
    let notice = moved.to_mark();
    let answer = match mark::mark_result(&String::from_utf8_lossy(&down), &notice) {
        Some(marked) => {
            caller.note_loss_reported(moved).await;
            Bytes::from(marked)
        }
        None => down,
    };
    let events = [notice.warning_event(), Event::message(answer)];
    let events = ReplyBody::Events(Box::pin(stream::iter(events.map(Ok))));
    Ok(Reply::new(reply.status, events))
}

/// An error of the upstream with the ids restored, or an accepted message.
async fn failed_or_accepted(reply: Reply, audience: &Audience) -> Result<Reply, ExchangeError> {
    // The body of an accepted message is read too, although it should be empty: that frees the connection.
    let text = reply.body.read_text(ANSWER_BYTES_MAX).await;
    if is_accepted(reply.status) {
        return Ok(Reply::empty(StatusCode::ACCEPTED));
    }
    let text = text?;
    let is_message = Message::parse(&text, Sender::Upstream).is_ok();
    let body = if is_message {
        ReplyBody::Json(restored(&text, audience))
    } else {
        ReplyBody::Text(text)
    };
    Ok(Reply {
        retry_after: reply.retry_after,
        challenge: None,
        ..Reply::new(passed_status(reply.status), body)
    })
}

/// Maps an upstream's status for the client. Refused upstream credentials are the gateway's problem, not the client's.
/// A 404 would tell the client that its own session is gone. Redirects and protocol switches must not reach the client.
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

/// The message with the client's id restored; other text is unchanged.
fn restored(text: &Bytes, audience: &Audience) -> Bytes {
    let Ok(message) = Message::parse(text, Sender::Upstream) else {
        return text.clone();
    };
    match rewrite_down(&message, &audience.marker()) {
        Ok(down) => into_bytes(down.text, text),
        Err(_) => text.clone(),
    }
}
