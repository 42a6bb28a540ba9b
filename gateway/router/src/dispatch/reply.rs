//! Turns a delivered response into the client's reply.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, Ready, ok, ready};
use futures_util::{TryStreamExt, stream};
use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::deliver::DeliveryResult;
use super::event_filter::{Audience, Caller, EventFilter, StreamOrigin};
use super::relay::{EventRelay, JsonRelay, ReplyGuards, note_mismatch};
use super::seals::Seals;
use crate::affinity::Session;
use crate::departure::Departure;
use crate::in_flight_requests::InFlightRequest;
use crate::pooled::ServerRequestResponder;
use crate::request_tag::StreamOwner;
use mooring_protocol::envelope::{Message, Sender};
use mooring_protocol::held::held_bytes;
use mooring_protocol::ids::Epoch;
use mooring_protocol::{
    Event, EventStream, HeldText, PendingRequest, Reply, ReplyBody, ReplyError, StreamError,
    StreamRewriter, rewrite_down,
};
use mooring_upstream::{ANSWER_BYTES_MAX, ExchangeError, Server};
use mooring_usage::{CallPermit, MemoryShare};

/// How replies are relayed.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Largest single message, in bytes.
    pub message_bytes_max: usize,
    /// Seals for the ids of server-to-client requests.
    pub seals: Seals,
    /// Cancelled when the gateway stops.
    pub stopping: CancellationToken,
    /// Whether the gateway leaves the fleet: streams without an unanswered call end when it drains.
    pub departure: Departure,
}

/// The reply for the client. Most are ready at once; the future of those that must be read first is boxed, so that a
/// call's own future is small.
pub type RelayFuture =
    Either<Ready<Result<Reply, ExchangeError>>, BoxFuture<'static, Result<Reply, ExchangeError>>>;

fn at_once(reply: Result<Reply, ExchangeError>) -> RelayFuture {
    Either::Left(ready(reply))
}

/// The reply to a message of a bound session. One that tells of a loss is always an event stream: the warning, then the
/// marked answer.
///
/// # Errors
/// The reply cannot be read, or answers another request.
pub fn relay_call(
    delivered: DeliveryResult,
    caller: Caller,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> RelayFuture {
    let pending_request = guards
        .request
        .as_ref()
        .map(|request| request.pending.clone());
    let epoch = Epoch(delivered.binding.epoch);
    let marker = (options.seals).marker(&caller.session, &caller.server, epoch);
    let audience = Audience::Bound(marker);
    let owner = StreamOwner::of(&caller.session, &caller.server.id);
    let reply = delivered.reply;
    let events = match (&delivered.moved, reply.body) {
        (_, ReplyBody::Events(events)) if reply.status.is_success() => events,
        (Some(_), body) if reply.status.is_success() && pending_request.is_some() => {
            let (memory, status) = (reply.memory.clone(), reply.status);
            let reply = Reply {
                memory,
                ..Reply::new(status, body)
            };
            text_as_event(reply, options.message_bytes_max)
        }
        (_, body) => {
            let reply = Reply { body, ..reply };
            let relayed = relay(reply, audience, owner, pending_request, guards, options);
            let binding = delivered.binding;
            return distrusting(relayed, move || caller.distrust_connections(&binding));
        }
    };
    let origin = StreamOrigin {
        caller,
        binding: delivered.binding,
        reports_loss: delivered.reports_loss,
    };
    let filter = EventFilter::new(
        audience,
        owner,
        pending_request,
        Some(origin),
        delivered.moved,
    );
    at_once(Ok(relay_events(
        StatusCode::OK,
        events,
        filter,
        guards,
        options,
    )))
}

/// A text body as a stream of one event, or of none if it is empty.
fn text_as_event(reply: Reply, bytes_max: usize) -> EventStream {
    let read = async move {
        let HeldText { text, held } = reply.read_text(bytes_max).await?;
        Ok((!text.is_empty()).then(|| Event {
            held,
            ..Event::message(text)
        }))
    };
    Box::pin(stream::once(read).try_filter_map(ok))
}

/// The reply to a message over a shared upstream session.
///
/// # Errors
/// The body of an error answer cannot be read.
pub fn relay_shared(
    received: Reply,
    responder: ServerRequestResponder,
    request: InFlightRequest,
    call: Option<Arc<CallPermit>>,
    options: &RelayOptions,
) -> RelayFuture {
    let distrusted = responder.clone();
    let audience = Audience::Shared(responder);
    let owner = StreamOwner::Request(request.tag());
    let pending = Some(request.pending.clone());
    let guards = ReplyGuards {
        request: Some(request),
        call,
        ..ReplyGuards::default()
    };
    let relayed = relay(received, audience, owner, pending, guards, options);
    distrusting(relayed, move || distrusted.distrust_connections())
}

/// Calls `distrust` if the reply answers another request: its connection may have been given back already.
fn distrusting(relayed: RelayFuture, distrust: impl FnOnce() + Send + 'static) -> RelayFuture {
    let is_mismatched = |relayed: &Result<Reply, ExchangeError>| {
        matches!(
            relayed,
            Err(ExchangeError::Invalid(StreamError::OtherRequest))
        )
    };
    match relayed {
        Either::Left(relayed) => {
            let relayed = relayed.into_inner();
            if is_mismatched(&relayed) {
                distrust();
            }
            at_once(relayed)
        }
        Either::Right(relayed) => Either::Right(Box::pin(async move {
            let relayed = relayed.await;
            if is_mismatched(&relayed) {
                distrust();
            }
            relayed
        })),
    }
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
            let owner = StreamOwner::of(session, &server.id);
            let filter = EventFilter::new(audience, owner, None, None, delivered.moved);
            Ok(relay_events(reply.status, events, filter, guards, options))
        }
        body => failed_or_accepted(Reply { body, ..reply }, &audience, None).await,
    }
}

/// Whether the status says that there is no answer.
fn is_accepted(status: StatusCode) -> bool {
    matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
}

fn relay(
    reply: Reply,
    audience: Audience,
    owner: StreamOwner,
    request: Option<PendingRequest>,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> RelayFuture {
    let status = reply.status;
    let memory = reply.memory.clone();
    match (reply.body, request) {
        (ReplyBody::Events(events), request) if status.is_success() => {
            let filter = EventFilter::new(audience, owner, request, None, None);
            at_once(Ok(relay_events(status, events, filter, guards, options)))
        }
        // Otherwise the client would wait forever for an answer.
        (_, Some(_)) if is_accepted(status) => at_once(Err(ExchangeError::NoResponse)),
        // The upstream is done, so the guards end here.
        (ReplyBody::Json(text), Some(request)) if status.is_success() => {
            at_once(answer_to(request, text).map(|text| Reply {
                memory,
                ..Reply::json(status, text)
            }))
        }
        (ReplyBody::JsonStream(chunks), Some(request)) if status.is_success() => {
            let message_bytes_max = options.message_bytes_max;
            Either::Right(Box::pin(async move {
                let held = memory.clone().map(MemoryShare::hold);
                let opened = JsonRelay::open(chunks, request, guards, message_bytes_max, held);
                let mut relay = opened.await?;
                Ok(match relay.take_whole() {
                    // Its memory is reserved already and must not be reserved twice.
                    Some(whole) => Reply::json(status, whole),
                    None => Reply {
                        memory,
                        ..Reply::new(status, ReplyBody::JsonStream(Box::pin(relay)))
                    },
                })
            }))
        }
        (_, Some(_)) if status.is_success() => at_once(Err(ExchangeError::NoResponse)),
        (body, request) => {
            let reply = Reply { body, ..reply };
            Either::Right(Box::pin(async move {
                let _until_read = guards;
                failed_or_accepted(reply, &audience, request).await
            }))
        }
    }
}

/// The whole reply to a request, with the client's id.
fn answer_to(request: PendingRequest, text: Bytes) -> Result<Bytes, ExchangeError> {
    StreamRewriter::rewrite(text, request).map_err(|error| {
        let error = ReplyError::from(error);
        note_mismatch(&error);
        error.into()
    })
}

fn relay_events(
    status: StatusCode,
    events: EventStream,
    filter: EventFilter,
    guards: ReplyGuards,
    options: &RelayOptions,
) -> Reply {
    let relay = EventRelay::new(events, filter, guards, &options.departure);
    Reply::new(status, ReplyBody::Events(Box::pin(relay)))
}

/// An error of the upstream with the ids restored, or an accepted message.
async fn failed_or_accepted(
    reply: Reply,
    audience: &Audience,
    request: Option<PendingRequest>,
) -> Result<Reply, ExchangeError> {
    // The body of an accepted message is read too, although it should be empty: that frees the connection.
    let (status, retry_after) = (reply.status, reply.retry_after.clone());
    let read = reply.read_text(ANSWER_BYTES_MAX).await;
    if is_accepted(status) {
        return Ok(Reply::empty(StatusCode::ACCEPTED));
    }
    let HeldText { text, held } = read?;
    let body = match Message::parse(&text, Sender::Upstream) {
        Ok(message) => {
            let error = error_to(&message, audience, request.as_ref())?;
            ReplyBody::Json(held_bytes(error, held.as_ref()))
        }
        Err(_) => ReplyBody::Text(held_bytes(text, held.as_ref())),
    };
    Ok(Reply {
        retry_after,
        challenge: None,
        ..Reply::new(passed_status(status), body)
    })
}

/// The JSON-RPC error with the client's id restored. Servers that refuse a request often do not read its id: the error
/// then has none, or one of the server's own.
fn error_to(
    message: &Message<'_>,
    audience: &Audience,
    request: Option<&PendingRequest>,
) -> Result<Bytes, ExchangeError> {
    let down = rewrite_down(message, &audience.marker()).map_err(|_| ExchangeError::NoResponse)?;
    let is_other = (down.answers.as_ref()).is_some_and(|origin| {
        origin.is_known() && !request.is_some_and(|request| request.is_answered(origin))
    });
    if is_other {
        let error = ReplyError::from(StreamError::OtherRequest);
        note_mismatch(&error);
        return Err(error.into());
    }
    Ok(Bytes::from(down.text.into_owned()))
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
