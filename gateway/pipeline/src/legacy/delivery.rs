//! Delivers a client's message to the gateway that has its stream.

use std::sync::Arc;

use bytes::Bytes;
use http::header::ORIGIN;
use http::{HeaderName, HeaderValue, StatusCode};
use mooring_session::names::{Principal, ServerName};
use mooring_session::view::OwnerView;

use super::clients::LegacyClients;
use crate::answer;
use crate::client_stream::{StreamContext, answer_request, listen, serve_message};
use crate::request::RequestFields;
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::MCP_PROTOCOL_VERSION;
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Message, Method, Reply, VersionError};
use mooring_router::affinity::{ConnectionKey, Session, StreamKind};
use mooring_store::SessionKey;
use mooring_upstream::SendError;
use mooring_usage::for_same_user;

/// In a message to another gateway, the digest of its sender's rights.
pub const RIGHTS: HeaderName = HeaderName::from_static("mooring-caller-rights");
/// A revision that no gateway can read, in place of one that this gateway could not read.
const MALFORMED: &[u8] = b"\xff";

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
    /// What the POST says besides the message; it names no session.
    pub fields: RequestFields,
    /// The message.
    pub body: Bytes,
}

impl LegacyClients {
    /// Delivers the message to the stream, at whichever gateway it is open.
    pub async fn deliver(&self, session: Session, message: StreamMessage) -> Reply {
        // Invalid messages are refused by the gateway that receives them.
        let id = match Message::parse(&message.body, Sender::Client) {
            Ok(message) => message.id().map(|id| Box::<str>::from(id.as_json())),
            Err(cause) => return answer::error(&ErrorBody::from(&cause)),
        };
        let id = (id.as_deref()).and_then(|id| mooring_protocol::Id::from_json(id).ok());
        let not_found = || answer::plain(ErrorKind::SessionNotFound, id);
        if (self.streams.find(&message.key, &message.principal)).is_some() {
            return self.deliver_here(message).await;
        }
        let session_router = &self.directory.core.session_router;
        let owner = session_router.stream_owner(&session, StreamKind::Legacy);
        match owner.await {
            // The record names this gateway, which has no such stream: the stream is lost.
            Ok(Some((owner, _))) if owner.worker == *session_router.worker() => not_found(),
            Ok(Some((owner, epoch))) => match self.forward(&owner, epoch, message).await {
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

    /// Forwards the message to the gateway that has the stream, with its fields as headers.
    async fn forward(
        &self,
        owner: &OwnerView,
        epoch: u64,
        message: StreamMessage,
    ) -> Result<Reply, SendError> {
        let place = ConnectionKey {
            key: message.key,
            server: message.server,
        };
        let mut headers = Default::default();
        message.fields.forwarded.add_to(&mut headers);
        let unread = match message.fields.revision {
            Ok(_) => None,
            Err(VersionError::Unsupported(name)) => HeaderValue::try_from(name).ok(),
            Err(VersionError::Malformed) => HeaderValue::from_bytes(MALFORMED).ok(),
        };
        if let Some(revision) = unread {
            headers.insert(MCP_PROTOCOL_VERSION, revision);
        }
        if message.fields.is_from_foreign_page {
            headers.insert(ORIGIN, HeaderValue::from_static("null"));
        }
        if let Ok(rights) = HeaderValue::try_from(message.rights) {
            headers.insert(RIGHTS, rights);
        }
        let session_router = &self.directory.core.session_router;
        session_router
            .forward_to_stream(
                owner,
                &place,
                &message.principal,
                epoch,
                headers,
                message.body,
            )
            .await
    }

    /// Delivers to a stream of this gateway: 202, or an error. A request is answered on the stream.
    pub async fn deliver_here(&self, message: StreamMessage) -> Reply {
        let StreamMessage {
            key,
            principal,
            rights,
            server,
            epoch,
            fields,
            body,
        } = message;
        let stream = self.streams.find(&key, &principal);
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
            directory: Arc::clone(&self.directory),
            stream,
            fields,
            lane: None,
            call: None,
        };
        if kind != Kind::Request {
            return deliver_one_way(context, body).await;
        }
        let call = match context.stream.begin_call() {
            Ok(call) => call,
            Err(refusal) => return refusal.to_reply(None),
        };
        context.call = Some(Arc::clone(&call.of_user));
        tokio::spawn(for_same_user(async move {
            answer_request(&context, &body).await;
            drop(call);
        }));
        Reply::empty(StatusCode::ACCEPTED)
    }
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

/// Delivers a message that has no response, and waits for it before the POST is answered, so that the client's next
/// message cannot overtake it.
async fn deliver_one_way(context: StreamContext, body: Bytes) -> Reply {
    let Ok(message) = Message::parse(&body, Sender::Client) else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let reply = serve_message(&context, &body, &message).await;
    if !reply.status.is_success() {
        context.stream.finish_if_over(reply.status);
        return reply;
    }
    if message.method() == Method::Initialized && context.stream.begin_listening() {
        tokio::spawn(for_same_user(listen(context)));
    }
    reply
}
