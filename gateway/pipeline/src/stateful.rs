//! Requests of stateful sessions, routed by their record in the store.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;

use super::answer;
use super::answer::with_session_id;
use super::held_text::into_held;
use super::request::{Request, SessionSource, UpstreamRequest, is_initialize};
use mooring_protocol::ids::{Epoch, ServerRequestId};
use mooring_protocol::rewrite::into_bytes;
use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Marker, Message, Method, Reply, RequestTag, Revision, Upward,
    rewrite_down, rewrite_up,
};
use mooring_router::InFlightRequest;
use mooring_router::affinity::{
    BindingHolder, CancelledRequest, CloseOutcome, InFlightKind, InitializeRequest, Session,
    StreamHold, StreamKind, SubscriptionState, Turn, TurnError, Withdrawal, caller_of,
};
use mooring_router::dispatch::{
    Call, Caller, DeliverError, DeliveryResult, OnLoss, READ_MAX, ReplyGuards, RetrySafety,
    SILENT_MAX, UpstreamSource, deliver, relay_call, relay_stream,
};
use mooring_session::rules::RouteReply;
use mooring_upstream::connection::event_id::{EventId, StreamName};
use mooring_upstream::{Outgoing, SendError};
use mooring_usage::for_same_user;

/// Serves one message.
pub(crate) async fn post(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if is_initialize(message) {
        return Box::pin(initialize(request, body, message, revision)).await;
    }
    let session = match request.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, message.id()),
    };
    let (router, server, lane) = (&request.core.session_router, request.server, request.lane);
    let withdrawal = router.withdraw(&session, server, message, lane).await;
    if withdrawal == Withdrawal::Withdrawn {
        return Reply::empty(StatusCode::ACCEPTED);
    }
    let pending = router.begin_request(&session, server, message, lane);
    let cancelled = router.find_cancelled(&session, server, message, lane);
    let tag = match (&pending, cancelled.await) {
        (Some(pending), _) => Some(pending.tag()),
        (None, CancelledRequest::Tagged(tag)) => Some(tag),
        (None, CancelledRequest::None | CancelledRequest::KnownToOwner) => None,
        // Its server could not know which of its requests is meant.
        (None, CancelledRequest::NotFound) => return Reply::empty(StatusCode::ACCEPTED),
    };
    let up = match rewrite_up(message, tag) {
        Ok(up) => up,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let is_genuine = |id: &ServerRequestId<'_>| {
        let seals = &request.core.relay.seals;
        seals.is_genuine(&session, server, id)
    };
    if !up.refers_to.as_ref().is_none_or(is_genuine) {
        return answer::plain(ErrorKind::AnswerUnexpected, message.id());
    }
    send_upstream(request, session, body, message, up, pending).await
}

/// Pause before a call asks for another turn because it lost one before it was sent.
const LOST_TURN_PAUSE: Duration = Duration::from_millis(50);

/// Sends a message upstream and relays the reply.
async fn send_upstream(
    request: &UpstreamRequest<'_>,
    session: Session,
    body: &Bytes,
    message: &Message<'_>,
    up: Upward<'_>,
    pending: Option<InFlightRequest>,
) -> Reply {
    let session_router = &request.core.session_router;
    let in_flight =
        session_router
            .active_bindings()
            .begin(&session, &request.server.id, InFlightKind::Call);
    let (mut turn, routed) = match request.take_turn(&session, message).await {
        Ok(turn) => turn.unzip(),
        Err(cause) => return answer::turn_error(&cause, message.id()),
    };
    if let Method::LoggingSetLevel | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe =
        message.method()
    {
        Box::pin(note(request, &session, message)).await;
    }
    let tool = message.params.name();
    let epoch = up.refers_to.as_ref().map(|request| request.epoch);
    if epoch.is_some() && message.kind().is_response() {
        session_router.note_client_answer(&session, &request.server.id);
    }
    let text = match into_held(up.text, body, request.usage.messages()) {
        Ok(text) => text,
        Err(cause) => return answer::no_room(cause, message.id()),
    };
    let mut call = Call {
        session: &session,
        server: request.server,
        outgoing: Outgoing::post(request.server, text)
            .timed_as(message.method())
            .forwarding(&request.fields.forwarded)
            .on_behalf_of(request.server, &caller_of(&session)),
        on_loss: match (message.kind(), message.method()) {
            (Kind::Request, Method::ToolsCall) => OnLoss::RecoverAndReport,
            (Kind::Request, _) => OnLoss::Recover,
            (Kind::Notification | Kind::Result | Kind::Error, _) => OnLoss::GiveUp,
        },
        repeat: repeat(message, tool.as_deref()),
        epoch,
        routed,
        permit: turn.as_ref().map(Turn::permit),
    };
    let mut delivered = deliver_in_turn(request, &mut call, &mut turn).await;
    let asks_until = Instant::now() + session_router.options().turn_wait_max;
    while let Err(DeliverError::Unreachable(SendError::TurnLost)) = &delivered
        && turn.take().is_some()
        && Instant::now() < asks_until
    {
        // Nothing was sent: only calls of tools have turns, and one that may have run fails otherwise.
        tokio::time::sleep(LOST_TURN_PAUSE).await;
        match Box::pin(request.take_turn(&session, message)).await {
            Ok(taken) => (turn, call.routed) = taken.unzip(),
            Err(cause) => return answer::turn_error(&cause, message.id()),
        }
        call.permit = turn.as_ref().map(Turn::permit);
        delivered = Box::pin(deliver_in_turn(request, &mut call, &mut turn)).await;
    }
    let delivered = match delivered {
        Ok(delivered) => delivered,
        Err(cause) => {
            if let DeliverError::OutcomeUnknown { .. } = cause {
                session_router.note_outcome_unknown(&session, &request.server.id);
            }
            return delivery_error(&cause, message);
        }
    };
    in_flight.set_holder(BindingHolder::of(
        &delivered.binding,
        session_router.worker(),
    ));
    if let Some(entry) = &request.entry {
        entry.note_instance(&delivered.binding.instance);
    }
    let source = UpstreamSource {
        session: session.digest.clone(),
        server: request.server.id.clone(),
        instance: delivered.binding.instance.clone(),
    };
    let caller = Caller {
        router: session_router.clone(),
        server: Arc::clone(request.server),
        session,
    };
    let guards = ReplyGuards {
        in_flight: Some(in_flight),
        stream: None,
        turn,
        request: pending,
        call: request.call.clone(),
        source: Some(source),
    };
    let relayed = relay_call(delivered, caller, guards, &request.core.relay);
    tokio::select! {
        biased;
        reply = relayed => reply.unwrap_or_else(|cause| answer::exchange(&cause, message.id())),
        // Dropped, the reply is read for a while and then given up with its turn.
        () = client_gone_for_long(request) => Reply::empty(StatusCode::ACCEPTED),
    }
}

impl UpstreamRequest<'_> {
    /// Takes the turn that the message needs, and the route that comes with it.
    async fn take_turn(
        &self,
        session: &Session,
        message: &Message<'_>,
    ) -> Result<Option<(Turn, RouteReply)>, TurnError> {
        let router = &self.core.session_router;
        let wait_max = router.options().turn_wait_max;
        router
            .take_call_turn(session, self.server, message, self.lane, wait_max)
            .await
    }
}

/// Returns once the client has been gone for [`SILENT_MAX`].
async fn client_gone_for_long(request: &UpstreamRequest<'_>) {
    request.client_gone.cancelled().await;
    tokio::time::sleep(SILENT_MAX).await;
}

/// Delivers a call. If the client disconnects before the reply begins, and the server then stays silent for
/// [`SILENT_MAX`], the call continues without its turn, and is given up after [`READ_MAX`].
async fn deliver_in_turn(
    request: &UpstreamRequest<'_>,
    call: &mut Call<'_>,
    turn: &mut Option<Turn>,
) -> Result<DeliveryResult, DeliverError> {
    let session = call.session;
    let mut delivered = pin!(deliver(&request.core.session_router, call));
    tokio::select! {
        biased;
        delivered = &mut delivered => return delivered,
        () = client_gone_for_long(request) => {}
    }
    if turn.take().is_some() {
        tracing::info!(session = %session.digest, "turn released: the client disconnected and the server is silent");
    }
    let given_up = DeliverError::OutcomeUnknown { moved: None };
    let delivered = tokio::time::timeout(READ_MAX - SILENT_MAX, delivered).await;
    delivered.unwrap_or(Err(given_up))
}

/// Serves the stream of messages that answer no request, or the events after `Last-Event-ID`.
pub(crate) async fn get(request: &UpstreamRequest<'_>) -> Reply {
    let session = match request.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    let hold = match hold(request, &session).await {
        Ok(hold) => hold,
        Err(reply) => return *reply,
    };
    open_stream(request, &session, hold)
        .await
        .unwrap_or_else(|cause| answer::delivery_error(&cause, None))
}

/// Opens the server's stream of messages that answer no request, or resumes after the event that the fields name.
pub(crate) async fn open_stream(
    request: &UpstreamRequest<'_>,
    session: &Session,
    hold: Option<StreamHold>,
) -> Result<Reply, DeliverError> {
    let (session_router, server) = (&request.core.session_router, request.server);
    let mut call = Call {
        session,
        server,
        outgoing: Outgoing::listen(server)
            .forwarding(&request.fields.forwarded)
            .on_behalf_of(server, &caller_of(session)),
        on_loss: OnLoss::Recover,
        repeat: RetrySafety::Harmless,
        epoch: None,
        routed: None,
        permit: None,
    };
    let active_bindings = session_router.active_bindings();
    let in_flight = active_bindings.begin(session, &server.id, InFlightKind::Stream);
    let delivered = deliver(session_router, &mut call).await?;
    in_flight.set_holder(BindingHolder::of(
        &delivered.binding,
        session_router.worker(),
    ));
    let guards = ReplyGuards {
        in_flight: Some(in_flight),
        stream: hold,
        ..ReplyGuards::default()
    };
    Ok(relay_stream(delivered, session, server, guards, &request.core.relay).await?)
}

/// Claims the session's unrelated stream for this gateway. Not for a client that resumes a call's stream by event id,
/// of which there may be several.
async fn hold(
    request: &UpstreamRequest<'_>,
    session: &Session,
) -> Result<Option<StreamHold>, Box<Reply>> {
    if let Some(id) = &request.fields.forwarded.last_event_id {
        let own = id.to_str().ok().and_then(EventId::parse);
        if own.is_none_or(|id| id.stream != StreamName::General) {
            return Ok(None);
        }
    }
    let held = request
        .core
        .session_router
        .hold_stream(session, StreamKind::Get);
    held.await
        .map_err(|cause| Box::new(answer::hold_error(&cause)))
}

/// Ends the session at its client's request, even if the client does not wait for the reply.
pub(crate) async fn end_session(request: &Request) -> Reply {
    let session = match request.session() {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    let router = request.core.session_router.clone();
    let closing = tokio::spawn(for_same_user(async move { router.close(&session).await }));
    match closing.await {
        Ok(Ok(CloseOutcome::Now)) => Reply::empty(StatusCode::NO_CONTENT),
        Ok(Ok(CloseOutcome::AlreadyClosed)) => answer::plain(ErrorKind::SessionNotFound, None),
        Ok(Err(cause)) => answer::store(&cause, None),
        Err(_) => answer::plain(ErrorKind::Internal, None),
    }
}

async fn initialize(
    request: &UpstreamRequest<'_>,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let Some(params) = message.raw_params() else {
        let (kind, id) = (ErrorKind::InvalidParams, message.id());
        return answer::detailed(kind, id, "initialize needs params");
    };
    // An initialize is not cancelled (MCP 2025-11-25, cancellation), and its session does not exist yet.
    let up = match rewrite_up(message, Some(RequestTag(rand::random()))) {
        Ok(up) => up,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let opening = InitializeRequest {
        transport: request.new_session_transport(),
        params,
        revision: revision.as_str(),
        text: into_bytes(up.text, body),
    };
    let session_router = &request.core.session_router;
    let opened = match &request.session {
        SessionSource::Begun(session) | SessionSource::Given(session) => {
            session_router
                .open_in(session, request.server, &opening)
                .await
        }
        SessionSource::Fields(_) => match request.mint_session() {
            Ok(session) => session_router.open(session, request.server, &opening).await,
            Err(cause) => Err(cause.into()),
        },
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(cause) => return answer::open_error(&cause, message.id()),
    };
    if let Some(entry) = &request.entry {
        entry.note_session(&opened.session.digest);
        entry.note_instance(&opened.binding.instance);
    }
    let answer = &opened.initialized.answer;
    let down = answer
        .message()
        .and_then(|answer| rewrite_down(&answer, &Marker::of(Epoch(opened.binding.epoch))).ok())
        .map(|down| Bytes::from(down.text.into_owned()));
    match down {
        Some(text) => {
            let reply = Reply::json(StatusCode::OK, text);
            with_session_id(reply, opened.session.id.as_str())
        }
        None => answer::plain(ErrorKind::UpstreamInvalid, message.id()),
    }
}

/// Whether a message that may have been delivered may be sent again.
fn repeat<'a>(message: &Message<'_>, tool: Option<&'a str>) -> RetrySafety<'a> {
    match (message.kind(), message.method(), tool) {
        (Kind::Request, Method::ToolsCall, Some(tool)) => RetrySafety::ByTool(tool),
        // The effect of repeating an unknown method is unknown.
        (Kind::Request, Method::ToolsCall | Method::Other, _) => RetrySafety::Never,
        (Kind::Request, ..) => RetrySafety::Harmless,
        (Kind::Notification | Kind::Result | Kind::Error, ..) => RetrySafety::Never,
    }
}

/// A notification to a lost upstream session is dropped: the next request makes a new upstream session and reports the
/// loss.
fn delivery_error(cause: &DeliverError, message: &Message<'_>) -> Reply {
    match (cause, message.kind()) {
        (DeliverError::Lost, Kind::Notification) => {
            tracing::info!("a notification to a lost upstream session was dropped");
            Reply::empty(StatusCode::ACCEPTED)
        }
        (cause, _) => answer::delivery_error(cause, message.id()),
    }
}

/// Stores settings that a later upstream session needs. The call does not fail if they cannot be stored.
async fn note(request: &UpstreamRequest<'_>, session: &Session, message: &Message<'_>) {
    let session_router = &request.core.session_router;
    let noted = match message.method() {
        Method::LoggingSetLevel => match message.params.level() {
            Some(level) => session_router.note_log_level(session, &level).await,
            None => return,
        },
        method @ (Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) => {
            let subscribed = if method == Method::ResourcesSubscribe {
                SubscriptionState::Subscribed
            } else {
                SubscriptionState::Unsubscribed
            };
            match message.params.uri() {
                Some(uri) => {
                    let server = &request.server.id;
                    session_router
                        .note_subscription(session, server, &uri, subscribed)
                        .await
                }
                None => return,
            }
        }
        _ => return,
    };
    if let Err(cause) = noted {
        tracing::info!(session = %session.digest, %cause, "a setting could not be stored for later upstream sessions");
    }
}
