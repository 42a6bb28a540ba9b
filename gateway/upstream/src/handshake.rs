//! The MCP handshake with an instance, for a client that performs it now or has performed it earlier.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use mooring_session::names::{NameError, UpstreamSession};

use super::exchange::{Answer, within};
use super::request::Outgoing;
use super::{
    Caller, ContactLog, ContactOutcome, ExchangeError, FailureCause, MessageTransport, SendError,
    Server, read_answer,
};
use mooring_protocol::{Kind, StreamError, call};

/// An `initialize` to send.
#[derive(Clone, Debug)]
pub struct InitializeHandshake {
    /// The request as it goes upstream.
    pub text: Bytes,
    /// Who sends `notifications/initialized` afterwards.
    pub completion: Completion,
}

/// Who completes the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The client, which sent this `initialize`.
    ByClient,
    /// The gateway, because the client completed its own handshake earlier.
    ByGateway,
}

/// A session that an instance has started.
#[derive(Clone, Debug)]
pub struct InitializedSession {
    /// The assigned id, if the instance is stateful.
    pub upstream_session: Option<UpstreamSession>,
    /// The negotiated revision.
    pub revision: Option<Box<str>>,
    /// Its answer.
    pub answer: Answer,
}

/// Why an instance did not start a session.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// No answer.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The answer is an error: the instance rejects this client, and so would any other.
    #[error("the instance refused to initialize with HTTP status {}", .0.status)]
    Refused(Box<Answer>),
    /// It assigned a session id although clients share this upstream connection. The session is deleted again.
    #[error("the instance assigned a session id, which clients must not share")]
    SessionAssigned,
    /// The assigned session id cannot be stored, so later messages could not name the session.
    #[error("the server's Mcp-Session-Id cannot be kept: {0}")]
    SessionId(#[source] NameError),
}

impl HandshakeError {
    /// Whether another instance may succeed.
    #[must_use]
    pub fn should_try_another_instance(&self) -> bool {
        match self {
            // Its connection was out of step, and another one is not.
            Self::Exchange(ExchangeError::Invalid(StreamError::OtherRequest)) => true,
            // It answered, and would again.
            Self::Exchange(ExchangeError::Invalid(_)) => false,
            Self::Exchange(ExchangeError::Send(SendError::Credential(_))) => false,
            Self::Exchange(_) => true,
            Self::Refused(answer) => answer.status.is_server_error(),
            Self::SessionAssigned | Self::SessionId(_) => false,
        }
    }
}

impl From<&HandshakeError> for FailureCause {
    fn from(error: &HandshakeError) -> Self {
        match error {
            HandshakeError::Exchange(error) => error.into(),
            HandshakeError::Refused(answer) if !answer.status.is_success() => {
                Self::status(answer.status)
            }
            HandshakeError::SessionAssigned | HandshakeError::SessionId(_) => {
                Self::new(ContactOutcome::Invalid, error.to_string())
            }
            HandshakeError::Refused(_) => Self::new(
                ContactOutcome::Invalid,
                "its answer to `initialize` is no result",
            ),
        }
    }
}

impl ContactLog {
    /// Records the outcome of a handshake. A JSON-RPC error counts as an answer: it concerns the client.
    pub fn note_handshake(&self, initialized: &Result<InitializedSession, HandshakeError>) {
        match initialized {
            Ok(_) => self.succeed(),
            Err(HandshakeError::Refused(answer))
                if answer.status.is_success() && answer.message().is_some() =>
            {
                self.succeed();
            }
            // Nothing was sent, because there is no credential for the caller.
            Err(HandshakeError::Exchange(ExchangeError::Send(SendError::Credential(_)))) => {}
            Err(error) => self.fail(FailureCause::from(error)),
        }
    }
}

/// Performs the handshake over `transport` within `limit`.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn initialize(
    transport: &impl MessageTransport,
    server: &Server,
    handshake: &InitializeHandshake,
    caller: &Caller<'_>,
    limit: Duration,
) -> Result<InitializedSession, HandshakeError> {
    let outgoing = Outgoing::post(server, handshake.text.clone()).on_behalf_of(server, caller);
    let exchange = async {
        let reply = transport.send(&outgoing).await?;
        let invalid_id = refused_session_id(reply.session_id.as_ref());
        Ok((read_answer(reply, &outgoing, transport).await?, invalid_id))
    };
    let (answer, invalid_id) = within(limit, exchange).await?;
    let is_result = answer.status.is_success()
        && answer
            .message()
            .is_some_and(|message| message.kind() == Kind::Result);
    if !is_result {
        return Err(HandshakeError::Refused(Box::new(answer)));
    }
    if let Some(error) = invalid_id {
        return Err(HandshakeError::SessionId(error));
    }
    let initialized = InitializedSession {
        upstream_session: answer.upstream_session.clone(),
        revision: revision_of(&answer),
        answer,
    };
    if handshake.completion == Completion::ByGateway
        && let Err(error) = complete(transport, server, &initialized, caller, limit).await
    {
        if let Some(begun) = &initialized.upstream_session {
            let deletion = Outgoing::delete(server)
                .on_behalf_of(server, caller)
                .upstream_session(Some(begun));
            // If this fails, the instance's own expiry ends the session.
            let _ = within(limit, async { Ok(transport.send(&deletion).await?) }).await;
        }
        return Err(error.into());
    }
    Ok(initialized)
}

async fn complete(
    transport: &impl MessageTransport,
    server: &Server,
    initialized: &InitializedSession,
    caller: &Caller<'_>,
    limit: Duration,
) -> Result<(), ExchangeError> {
    let mut outgoing = Outgoing::post(server, Bytes::from_static(call::initialized().as_bytes()))
        .on_behalf_of(server, caller)
        .upstream_session(initialized.upstream_session.as_ref());
    if let Some(revision) = &initialized.revision {
        outgoing = outgoing.revision(revision);
    }
    within(limit, async { Ok(transport.send(&outgoing).await?) })
        .await
        .map(|_| ())
}

/// Why the session id in a reply cannot be stored; `None` if it can, or if there is none.
fn refused_session_id(session_id: Option<&HeaderValue>) -> Option<NameError> {
    let id = session_id?.as_bytes();
    UpstreamSession::parse(id).err().filter(|_| !id.is_empty())
}

/// The revision in an initialize result.
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
