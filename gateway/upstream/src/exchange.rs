//! A request of the gateway itself and its single answer, bounded in time and size.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::StatusCode;
use mooring_session::names::UpstreamSession;

use super::{ContactOutcome, FailureCause, Outgoing, SendError};
use mooring_metrics as metrics;
use mooring_protocol::envelope::{Kind, Message, Sender};
use mooring_protocol::held::held_bytes;
use mooring_protocol::ids::is_same_id;
use mooring_protocol::{EventStream, Reply, ReplyBody, ReplyError, RequestOrigin, StreamError};
use mooring_usage::work_on_text;

/// The largest answer to a gateway request, in bytes: a `tools/list` of a thousand tools is under 1 MiB.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The answer to a gateway request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The session id in the response.
    pub upstream_session: Option<UpstreamSession>,
    /// The JSON text of the response message; empty if there was none. It keeps the memory that it takes.
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
    /// It is not the response to the request.
    #[error("the answer is invalid: {0}")]
    Invalid(#[source] StreamError),
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

/// Where a reply came from.
pub trait ReplySource {
    /// A reply answers another message than it was sent for: whatever it came over may be shifted by a response, and is
    /// not used again.
    fn distrust(&self);
}

/// None: nothing that is used again.
impl<S: ReplySource> ReplySource for Option<S> {
    fn distrust(&self) {
        if let Some(source) = self {
            source.distrust();
        }
    }
}

/// Reads the single response to a request, as JSON or as an event. If it is the response to another one, its source is
/// distrusted.
///
/// # Errors
/// See [`ExchangeError`]; [`ExchangeError::Invalid`] if it is the response to another request.
pub async fn read_answer(
    reply: Reply,
    request: &Outgoing,
    source: &impl ReplySource,
) -> Result<Answer, ExchangeError> {
    let session_id = reply.session_id.as_ref();
    let upstream_session = session_id.and_then(|id| UpstreamSession::parse(id.as_bytes()).ok());
    let status = reply.status;
    let text = match reply.body {
        ReplyBody::Events(events) => read_event(events).await?,
        body => {
            let reply = Reply { body, ..reply };
            reply.read_text(ANSWER_BYTES_MAX).await?.into_bytes()
        }
    };
    check_beside_if_long(status, &text, request)
        .await
        .map_err(|error| {
            if error == StreamError::OtherRequest {
                metrics::reply_mismatched(metrics::ReplySource::Upstream);
                source.distrust();
            }
            ExchangeError::Invalid(error)
        })?;
    Ok(Answer {
        status,
        upstream_session,
        text,
    })
}

async fn read_event(mut events: EventStream) -> Result<Bytes, ExchangeError> {
    while let Some(event) = events.try_next().await? {
        match event.as_message() {
            Some(text) if text.len() > ANSWER_BYTES_MAX => return Err(ExchangeError::TooLarge),
            Some(text) if is_response(text).await => {
                return Ok(held_bytes(text.clone(), event.held.as_ref()));
            }
            Some(_) | None => {}
        }
    }
    Err(ExchangeError::NoResponse)
}

async fn is_response(text: &Bytes) -> bool {
    let read = text.clone();
    let is_response = move || {
        let message = Message::parse(&read, Sender::Upstream);
        message.is_ok_and(|message| message.kind().is_response())
    };
    work_on_text(text.len(), is_response).await.unwrap_or(false)
}

async fn check_beside_if_long(
    status: StatusCode,
    text: &Bytes,
    request: &Outgoing,
) -> Result<(), StreamError> {
    let (answer, request) = (text.clone(), request.body().clone());
    let checked = work_on_text(text.len(), move || check(status, &answer, &request));
    checked.await.unwrap_or(Err(StreamError::NotAResponse))
}

/// Checks that an answer is that to the request. An error status may come without a message, and an error without an id
/// or with one of the server's own, because the server did not read the request.
fn check(status: StatusCode, text: &[u8], request: &[u8]) -> Result<(), StreamError> {
    let sent = Message::parse(request, Sender::Gateway).ok();
    let sent = sent.filter(|sent| sent.kind() == Kind::Request);
    let Some(id) = sent.as_ref().and_then(Message::id) else {
        return Ok(());
    };
    let answer = Message::parse(text, Sender::Upstream).ok();
    let answer = answer.filter(|answer| answer.kind().is_response());
    let answered = answer
        .as_ref()
        .map(|answer| answer.id().map(|id| id.as_json()));
    // An error that names no request of a gateway may be the answer of a server that did not read it.
    let is_error = answer
        .as_ref()
        .is_some_and(|answer| answer.kind() == Kind::Error);
    let is_refusal = is_error || !status.is_success();
    match answered {
        Some(Some(answered)) if is_same_id(answered, id.as_json()) => Ok(()),
        Some(Some(answered)) if !is_refusal || RequestOrigin::of_value(answered).is_known() => {
            Err(StreamError::OtherRequest)
        }
        _ if is_refusal => Ok(()),
        Some(_) => Err(StreamError::NoId),
        None => Err(StreamError::NotAResponse),
    }
}

impl From<&ExchangeError> for FailureCause {
    fn from(error: &ExchangeError) -> Self {
        let outcome = match error {
            ExchangeError::Send(error) => return error.into(),
            ExchangeError::TimedOut(_) => ContactOutcome::TimedOut,
            ExchangeError::Body(_) => ContactOutcome::Broken,
            ExchangeError::TooLarge | ExchangeError::NoResponse | ExchangeError::Invalid(_) => {
                ContactOutcome::Invalid
            }
        };
        Self::new(outcome, error.to_string())
    }
}

impl From<ReplyError> for ExchangeError {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::TooLong(_) | ReplyError::Event(_) => Self::TooLarge,
            ReplyError::Json(error) => Self::Invalid(error),
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
