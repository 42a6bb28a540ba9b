//! Requests of sessions that are kept: a record in the store says where each goes.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use mooring_session::view::BindingView;

use super::answer;
use super::endpoint::{Visit, is_initialize, session_id, with_session_id};
use crate::affinity::{Closed, Driver, InFlightKind, Introduction, Session, Subscribed};
use crate::dispatch::{
    Answering, Call, Caller, DeliverError, OnLoss, Repeat, deliver, empty, relay_call, relay_stream,
};
use crate::mcp::ids::Epoch;
use crate::mcp::rewrite::into_bytes;
use crate::mcp::{ErrorBody, ErrorKind, Kind, Message, Method, Revision, rewrite_down, rewrite_up};
use crate::upstream::Outgoing;

/// One message.
pub(super) async fn post(
    visit: &Visit,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Response {
    if is_initialize(message) {
        return initialize(visit, body, message, revision).await;
    }
    let session = match session(visit) {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, message.id()),
    };
    let up = match rewrite_up(message, None) {
        Ok(up) => up,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let epoch = up.refers_to.as_ref().map(|request| request.epoch);
    note(visit, &session, message).await;
    let text = into_bytes(up.text, body);
    let tool = message.params.name();
    let call = Call {
        session: &session,
        server: &visit.server,
        outgoing: Outgoing::post(&visit.server, text).forwarding(&visit.headers),
        on_loss: if message.kind() == Kind::Request {
            OnLoss::Recover
        } else {
            OnLoss::GiveUp
        },
        repeat: repeat(message, tool.as_deref()),
        epoch,
    };
    let affinity = &visit.app.affinity;
    let in_flight = affinity
        .driven()
        .begin(&session, &visit.server.id, InFlightKind::Call);
    let delivered = match deliver(affinity, &call).await {
        Ok(delivered) => delivered,
        Err(cause) => return undelivered(&cause, message),
    };
    in_flight.driven_by(driver(visit, &delivered.binding));
    let answering = (message.kind() == Kind::Request)
        .then(|| message.id())
        .flatten()
        .map(|id| Answering {
            id_json: id.as_json().into(),
        });
    let caller = Caller {
        affinity: affinity.clone(),
        server: Arc::clone(&visit.server),
        session,
    };
    relay_call(
        delivered,
        caller,
        answering,
        Some(in_flight),
        &visit.app.relay,
    )
    .await
    .unwrap_or_else(|cause| answer::exchange(&cause, message.id()))
}

/// The stream of messages that answer nothing, or of what came after an event.
pub(super) async fn get(visit: &Visit) -> Response {
    let session = match session(visit) {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    let call = Call {
        session: &session,
        server: &visit.server,
        outgoing: Outgoing::listen(&visit.server).forwarding(&visit.headers),
        on_loss: OnLoss::Recover,
        repeat: Repeat::Harmless,
        epoch: None,
    };
    let affinity = &visit.app.affinity;
    let in_flight = affinity
        .driven()
        .begin(&session, &visit.server.id, InFlightKind::Stream);
    let delivered = match deliver(affinity, &call).await {
        Ok(delivered) => delivered,
        Err(cause) => return answer::undelivered(&cause, None),
    };
    in_flight.driven_by(driver(visit, &delivered.binding));
    relay_stream(delivered, Some(in_flight), &visit.app.relay)
        .await
        .unwrap_or_else(|cause| answer::exchange(&cause, None))
}

/// The client is done.
pub(super) async fn delete(visit: &Visit) -> Response {
    let session = match session(visit) {
        Ok(session) => session,
        Err(kind) => return answer::plain(kind, None),
    };
    match visit.app.affinity.close(&session).await {
        Ok(Closed::Now) => empty(StatusCode::NO_CONTENT),
        Ok(Closed::Before) => answer::plain(ErrorKind::SessionNotFound, None),
        Err(cause) => answer::store(&cause, None),
    }
}

async fn initialize(
    visit: &Visit,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Response {
    let Some(params) = message.raw_params() else {
        let error = ErrorBody::new(ErrorKind::InvalidParams).answering(message.id());
        return answer::error(&error.detail("initialize needs params"));
    };
    let up = match rewrite_up(message, None) {
        Ok(up) => up,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let introduction = Introduction {
        params,
        revision: revision.as_str(),
        text: into_bytes(up.text, body),
    };
    let affinity = &visit.app.affinity;
    let opened = match affinity
        .open(&visit.principal, &visit.server, &introduction)
        .await
    {
        Ok(opened) => opened,
        Err(cause) => return answer::unopened(&cause, message.id()),
    };
    let answer = &opened.initialized.answer;
    let down = answer
        .message()
        .and_then(|answer| rewrite_down(&answer, Epoch(opened.binding.epoch)).ok())
        .map(|down| Bytes::from(down.text.into_owned()));
    match down {
        Some(text) => {
            let reply = answer::json(StatusCode::OK, text);
            with_session_id(reply, opened.session.id.as_str())
        }
        None => answer::plain(ErrorKind::UpstreamInvalid, message.id()),
    }
}

fn session(visit: &Visit) -> Result<Session, ErrorKind> {
    let id = session_id(&visit.headers)?;
    let prefix = &visit.app.affinity.options().key_prefix;
    Ok(Session::named(prefix, id, visit.principal.clone()))
}

fn driver(visit: &Visit, binding: &BindingView) -> Driver {
    if binding.driver == *visit.app.affinity.worker() {
        Driver::This
    } else {
        Driver::Other
    }
}

/// What may be done where the message may have been delivered.
fn repeat<'a>(message: &Message<'_>, tool: Option<&'a str>) -> Repeat<'a> {
    match (message.kind(), message.method(), tool) {
        (Kind::Request, Method::ToolsCall, Some(tool)) => Repeat::ByTool(tool),
        // Of a method that the gateway does not know it cannot say what repeating it does.
        (Kind::Request, Method::ToolsCall | Method::Other, _) => Repeat::Never,
        (Kind::Request, ..) => Repeat::Harmless,
        (Kind::Notification | Kind::Result | Kind::Error, ..) => Repeat::Never,
    }
}

/// A notification to a lost upstream session has no reader left; the next request makes the new session and tells.
fn undelivered(cause: &DeliverError, message: &Message<'_>) -> Response {
    match (cause, message.kind()) {
        (DeliverError::Lost, Kind::Notification) => {
            tracing::info!("a notification to a lost upstream session was dropped");
            empty(StatusCode::ACCEPTED)
        }
        (cause, _) => answer::undelivered(cause, message.id()),
    }
}

/// Notes what a later upstream session would have to be told. That it cannot be noted is no reason to fail the call.
async fn note(visit: &Visit, session: &Session, message: &Message<'_>) {
    let affinity = &visit.app.affinity;
    let noted = match message.method() {
        Method::LoggingSetLevel => match message.params.level() {
            Some(level) => affinity.note_log_level(session, &level).await,
            None => return,
        },
        method @ (Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) => {
            let subscribed = if method == Method::ResourcesSubscribe {
                Subscribed::Yes
            } else {
                Subscribed::No
            };
            match message.params.uri() {
                Some(uri) => affinity.note_subscription(session, &uri, subscribed).await,
                None => return,
            }
        }
        _ => return,
    };
    if let Err(cause) = noted {
        tracing::info!(session = %session.digest, %cause, "a setting was not noted for a later upstream session");
    }
}
