//! Delivers a client's message to the gateway that has its stream.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use mooring_session::names::{Principal, ServerName};
use mooring_session::view::OwnerView;

use super::super::client_stream::{StreamContext, answer_request, finish_if_over, listen, serve};
use super::super::{App, answer};
use mooring_identity::Identity;
use mooring_peers::{Forward, Verdict};
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::MCP_PROTOCOL_VERSION;
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Method, Reply};
use mooring_router::affinity::{ConnectionKey, Session, StreamKind};
use mooring_store::SessionKey;
use mooring_upstream::{SendError, is_forwarded};
use mooring_usage::for_same_user;

/// In a message to another gateway, the digest of its sender's rights.
const RIGHTS: HeaderName = HeaderName::from_static("mooring-caller-rights");

/// A message POSTed for a stream of this gateway.
#[derive(Debug)]
pub struct StreamMessage {
    /// The stream's session.
    pub key: SessionKey,
    /// The principal that POSTed it.
    pub principal: Principal,
    /// The digest of that caller's rights. They have to be those with which the stream was opened, since the stream
    /// serves its messages with these.
    pub rights: String,
    /// The server in the path of the POST.
    pub server: ServerName,
    /// The epoch of the stream's binding, if another gateway read it from the record.
    pub epoch: Option<u64>,
    /// The client's headers that [`selected_headers`] selects.
    pub headers: HeaderMap,
    /// The message.
    pub body: Bytes,
}

/// Delivers the message to the stream, at whichever gateway it is open.
pub(super) async fn deliver(
    app: &Arc<App>,
    session: Session,
    caller: &Identity,
    server: ServerName,
    headers: HeaderMap,
    body: Bytes,
) -> Reply {
    // Invalid messages are refused by the gateway that receives them.
    let id = match Message::parse(&body, Sender::Client) {
        Ok(message) => message.id().map(|id| Box::<str>::from(id.as_json())),
        Err(cause) => return answer::error(&ErrorBody::from(&cause)),
    };
    let id = id
        .as_deref()
        .and_then(|id| mooring_protocol::Id::from_json(id).ok());
    let not_found = || answer::plain(ErrorKind::SessionNotFound, id);
    let message = StreamMessage {
        key: session.key.clone(),
        principal: session.principal.clone(),
        rights: caller.rights_digest(),
        server,
        epoch: None,
        headers: selected_headers(&headers),
        body,
    };
    if app.legacy.find(&message.key, &message.principal).is_some() {
        return deliver_here(app, message).await;
    }
    let session_router = &app.session_router;
    match session_router
        .stream_owner(&session, StreamKind::Legacy)
        .await
    {
        // The record names this gateway, which has no such stream: the stream is lost.
        Ok(Some((owner, _))) if owner.worker == *session_router.worker() => not_found(),
        Ok(Some((owner, epoch))) => match forward_message(app, &owner, epoch, message).await {
            Ok(reply) => reply,
            Err(cause) => {
                tracing::info!(session = %session.digest, owner = %owner.worker, %cause, "message for an HTTP+SSE client's stream could not be forwarded");
                answer::plain(kind_of(&cause), id)
            }
        },
        Ok(None) => not_found(),
        Err(cause) => answer::hold_error(&cause),
    }
}

async fn forward_message(
    app: &App,
    owner: &OwnerView,
    epoch: u64,
    message: StreamMessage,
) -> Result<Reply, SendError> {
    let place = ConnectionKey {
        key: message.key,
        server: message.server,
    };
    let mut headers = message.headers;
    if let Ok(rights) = HeaderValue::try_from(message.rights) {
        headers.insert(RIGHTS, rights);
    }
    let passed_on = app.session_router.forward_to_stream(
        owner,
        &place,
        &message.principal,
        epoch,
        headers,
        message.body,
    );
    passed_on.await
}

/// The client's error. A stream that its gateway does not have, or is about to close, has ended.
fn kind_of(cause: &SendError) -> ErrorKind {
    match cause {
        SendError::Elsewhere | SendError::Ended(_) | SendError::OwnerDraining => {
            ErrorKind::SessionNotFound
        }
        cause if cause.is_undelivered() => ErrorKind::UpstreamUnavailable,
        _ => ErrorKind::UpstreamTimeout,
    }
}

/// Serves a message that a peer forwarded, also if that peer disconnects meanwhile.
///
/// # Errors
/// The verdict to return if the message is for no stream of this gateway.
pub(in super::super) async fn serve_forward(
    app: &Arc<App>,
    forward: Forward,
) -> Result<Reply, Verdict> {
    let key = app.session_router.store().key_named(&forward.session_key);
    let mut headers = forward.headers;
    let rights = headers.remove(RIGHTS).ok_or(Verdict::NotHere)?;
    let message = StreamMessage {
        key: key.ok_or(Verdict::NotHere)?,
        principal: forward.principal,
        rights: rights.to_str().map_err(|_| Verdict::NotHere)?.to_owned(),
        server: forward.server,
        epoch: Some(forward.epoch),
        headers,
        body: forward.body,
    };
    let app = Arc::clone(app);
    let delivering = tokio::spawn(for_same_user(
        async move { deliver_here(&app, message).await },
    ));
    let delivered = delivering.await;
    Ok(delivered.unwrap_or_else(|_| answer::plain(ErrorKind::Internal, None)))
}

/// Delivers to a stream of this gateway: 202, or an error. A request is answered on the stream.
pub async fn deliver_here(app: &Arc<App>, message: StreamMessage) -> Reply {
    let StreamMessage {
        key,
        principal,
        rights,
        server,
        epoch,
        headers,
        body,
    } = message;
    let stream = app.legacy.find(&key, &principal);
    let Some(stream) = stream.filter(|stream| stream.takes(&principal, &server, epoch)) else {
        return answer::plain(ErrorKind::SessionNotFound, None);
    };
    if stream.identity.rights_digest() != rights {
        tracing::info!(session = %stream.session.digest, "message refused: its sender had other teams, roles or scopes when the stream was opened");
        return answer::plain(ErrorKind::SessionNotFound, None);
    }
    let kind = match Message::parse(&body, Sender::Client) {
        Ok(message) => message.kind(),
        Err(cause) => return answer::error(&ErrorBody::from(&cause)),
    };
    let mut context = StreamContext {
        app: Arc::clone(app),
        stream,
        headers,
        lane: None,
        call: None,
    };
    if kind != Kind::Request {
        return deliver_one_way(context, body).await;
    }
    let call = match context.stream.begin_call() {
        Ok(call) => call,
        Err(refusal) => return answer::call_refusal(refusal, None),
    };
    context.call = Some(Arc::clone(&call.of_user));
    tokio::spawn(for_same_user(async move {
        answer_request(&context, &body).await;
        drop(call);
    }));
    Reply::empty(StatusCode::ACCEPTED)
}

/// Delivers a message that has no response, and waits for it before the POST is answered, so that the client's next
/// message cannot overtake it.
async fn deliver_one_way(context: StreamContext, body: Bytes) -> Reply {
    let Ok(message) = Message::parse(&body, Sender::Client) else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let reply = serve(&context, &body, &message).await;
    if !reply.status.is_success() {
        finish_if_over(&context.stream, reply.status);
        return reply;
    }
    if message.method() == Method::Initialized && context.stream.begin_listening() {
        tokio::spawn(for_same_user(listen(context)));
    }
    reply
}

/// The client's headers to send with its message: those that are forwarded upstream, and the revision.
fn selected_headers(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| **name == MCP_PROTOCOL_VERSION || is_forwarded(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
