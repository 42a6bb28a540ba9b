//! The MCP handshake with an instance, on behalf of a client that made it long ago or is making it now.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use mooring_session::names::{NameError, UpstreamSession};

use super::exchange::{Answer, within};
use super::request::Outgoing;
use super::{ExchangeError, MessageTransport, Server, read_answer};
use mooring_protocol::{Kind, call};

/// An `initialize` to be sent.
#[derive(Clone, Debug)]
pub struct InitializeHandshake {
    /// The request as it goes upstream.
    pub text: Bytes,
    /// Who says `notifications/initialized` afterwards.
    pub completion: Completion,
}

/// Who completes the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The client, whose initialize this is.
    ByClient,
    /// The gateway, because the client completed its own long ago.
    ByGateway,
}

/// A session that an instance began.
#[derive(Clone, Debug)]
pub struct InitializedSession {
    /// The id it gave, if it keeps sessions.
    pub upstream_session: Option<UpstreamSession>,
    /// The revision it chose.
    pub revision: Option<Box<str>>,
    /// Its answer.
    pub answer: Answer,
}

/// Why an instance did not begin a session.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// No answer.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// An answer that is no result: the instance refuses this client, and another would too.
    #[error("the instance refused to initialize with HTTP status {}", .0.status)]
    Refused(Box<Answer>),
    /// It assigned a session id, and what is sent to it would be shared. The session is deleted again.
    #[error("the instance assigned a session id, which clients must not share")]
    SessionAssigned,
    /// The session id that it gave cannot be kept, so that no later message would belong to the session.
    #[error("the server's Mcp-Session-Id cannot be kept: {0}")]
    SessionId(#[source] NameError),
}

impl HandshakeError {
    /// Whether another instance may do better.
    #[must_use]
    pub fn is_instance_away(&self) -> bool {
        match self {
            Self::Exchange(_) => true,
            Self::Refused(answer) => answer.status.is_server_error(),
            Self::SessionAssigned => false,
            Self::SessionId(_) => false,
        }
    }
}

/// Makes the handshake over `way` within `limit`.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn initialize(
    way: &impl MessageTransport,
    server: &Server,
    handshake: &InitializeHandshake,
    session_digest: &str,
    limit: Duration,
) -> Result<InitializedSession, HandshakeError> {
    let outgoing = Outgoing::post(server, handshake.text.clone()).session_digest(session_digest);
    let exchange = async {
        let reply = way.send(&outgoing).await?;
        let unkept = refused_session_id(reply.session_id.as_ref());
        Ok((read_answer(reply).await?, unkept))
    };
    let (answer, unkept) = within(limit, exchange).await?;
    let is_result = answer.status.is_success()
        && answer
            .message()
            .is_some_and(|message| message.kind() == Kind::Result);
    if !is_result {
        return Err(HandshakeError::Refused(Box::new(answer)));
    }
    if let Some(error) = unkept {
        return Err(HandshakeError::SessionId(error));
    }
    let initialized = InitializedSession {
        upstream_session: answer.upstream_session.clone(),
        revision: revision_of(&answer),
        answer,
    };
    if handshake.completion == Completion::ByGateway
        && let Err(error) = complete(way, server, &initialized, session_digest, limit).await
    {
        if let Some(begun) = &initialized.upstream_session {
            let deletion = Outgoing::delete(server).upstream_session(Some(begun));
            // What fails here is left to the instance's own expiry.
            let _ = within(limit, async { Ok(way.send(&deletion).await?) }).await;
        }
        return Err(error.into());
    }
    Ok(initialized)
}

async fn complete(
    way: &impl MessageTransport,
    server: &Server,
    initialized: &InitializedSession,
    session_digest: &str,
    limit: Duration,
) -> Result<(), ExchangeError> {
    let mut outgoing = Outgoing::post(server, Bytes::from_static(call::initialized().as_bytes()))
        .session_digest(session_digest)
        .upstream_session(initialized.upstream_session.as_ref());
    if let Some(revision) = &initialized.revision {
        outgoing = outgoing.revision(revision);
    }
    within(limit, async { Ok(way.send(&outgoing).await?) })
        .await
        .map(|_| ())
}

/// Why the session id in a reply cannot be kept; none where it can, or where there is none.
fn refused_session_id(session_id: Option<&HeaderValue>) -> Option<NameError> {
    let id = session_id?.as_bytes();
    UpstreamSession::parse(id).err().filter(|_| !id.is_empty())
}

/// The revision that an initialize result names.
fn revision_of(answer: &Answer) -> Option<Box<str>> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: Box<str>,
    }
    let message = answer.message()?;
    let result: InitializeResult = serde_json::from_str(message.outcome()?).ok()?;
    Some(result.protocol_version)
}
