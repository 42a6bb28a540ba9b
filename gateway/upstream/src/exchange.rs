//! A request of the gateway itself and its single answer, bounded in time and size.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::StatusCode;
use mooring_session::names::UpstreamSession;

use super::SendError;
use mooring_protocol::envelope::{Message, Sender};
use mooring_protocol::{EventStream, Reply, ReplyBody, ReplyError};

/// The largest answer to a gateway request, in bytes: a `tools/list` of a thousand tools is under 1 MiB.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The answer to a gateway request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The session id in the response.
    pub upstream_session: Option<UpstreamSession>,
    /// The JSON text of the response message; empty if there was none.
    pub text: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The request got no response.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Neither a response nor an error within the limit.
    #[error("the instance did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The body broke.
    #[error("the answer broke off")]
    Body(#[source] ReplyError),
    /// The answer exceeds [`ANSWER_BYTES_MAX`], or its event stream is unreadable.
    #[error("the answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// The reply, or its event stream, ended without a response.
    #[error("the answer ended without the response")]
    NoResponse,
}

/// Runs `exchange` within `limit`.
///
/// # Errors
/// [`ExchangeError::TimedOut`], or the error of `exchange`.
pub async fn within<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, ExchangeError>>,
) -> Result<T, ExchangeError> {
    tokio::time::timeout(limit, exchange)
        .await
        .unwrap_or(Err(ExchangeError::TimedOut(limit)))
}

/// Reads the single response to a gateway request, as JSON or as an event.
///
/// # Errors
/// See [`ExchangeError`].
pub async fn read_answer(reply: Reply) -> Result<Answer, ExchangeError> {
    let upstream_session = reply
        .session_id
        .and_then(|id| UpstreamSession::parse(id.as_bytes()).ok());
    let text = match reply.body {
        ReplyBody::Events(events) => read_event(events).await?,
        body => body.read_text(ANSWER_BYTES_MAX).await?,
    };
    Ok(Answer {
        status: reply.status,
        upstream_session,
        text,
    })
}

/// Reads events up to the first response and drops all others: a gateway request has no client for them.
async fn read_event(mut events: EventStream) -> Result<Bytes, ExchangeError> {
    while let Some(event) = events.try_next().await? {
        match event.as_message() {
            Some(text) if text.len() > ANSWER_BYTES_MAX => return Err(ExchangeError::TooLarge),
            Some(text) if is_response(text) => return Ok(text.clone()),
            Some(_) | None => {}
        }
    }
    Err(ExchangeError::NoResponse)
}

fn is_response(text: &[u8]) -> bool {
    Message::parse(text, Sender::Upstream).is_ok_and(|message| message.kind().is_response())
}

impl From<ReplyError> for ExchangeError {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::TooLong(_) | ReplyError::Event(_) => Self::TooLarge,
            error => Self::Body(error),
        }
    }
}

impl Answer {
    /// The response message, if the text is valid.
    #[must_use]
    pub fn message(&self) -> Option<Message<'_>> {
        Message::parse(&self.text, Sender::Upstream).ok()
    }

    /// Turns the answer back into a reply.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        Reply::json(self.status, self.text)
    }
}
