//! A request of the gateway's own, and the one answer to it: bounded in time and size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use mooring_session::names::UpstreamSession;

use super::{Body, BodyError, Reply, SendError};
use mooring_protocol::envelope::{Message, Sender};
use mooring_protocol::event::EventParser;
use mooring_protocol::header::MCP_SESSION_ID;

/// The largest answer to a request of the gateway's own, in bytes: a `tools/list` of a thousand tools is under 1 MiB.
pub(super) const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The answer to a request of the gateway's own.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The session id that came with it.
    pub upstream_session: Option<UpstreamSession>,
    /// The JSON text of the response message; empty where there was none.
    pub text: Bytes,
}

/// A response to a client's message.
#[derive(Debug)]
pub enum ReceivedResponse {
    /// To be passed on as it arrives.
    Streaming(Reply),
    /// An error that had to be read to be understood.
    Whole(Answer),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The request got no response.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Neither response nor error within the limit.
    #[error("the instance did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The body broke off.
    #[error("the answer broke off")]
    Body(#[source] BodyError),
    /// The answer is larger than [`ANSWER_BYTES_MAX`], or its event stream cannot be read.
    #[error("the answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// The reply, or its event stream, ended without a response.
    #[error("the answer ended without the response")]
    NoResponse,
}

/// Runs `exchange` within `limit`.
///
/// # Errors
/// [`ExchangeError::TimedOut`], or the exchange's own.
pub async fn within<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, ExchangeError>>,
) -> Result<T, ExchangeError> {
    tokio::time::timeout(limit, exchange)
        .await
        .unwrap_or(Err(ExchangeError::TimedOut(limit)))
}

/// Reads the one response to a request of the gateway's own, whether it comes as JSON or as an event.
///
/// # Errors
/// See [`ExchangeError`].
pub async fn read_answer(response: Reply) -> Result<Answer, ExchangeError> {
    let status = response.status();
    let upstream_session = response
        .headers()
        .get(MCP_SESSION_ID)
        .and_then(|value| UpstreamSession::parse(value.as_bytes()).ok());
    let is_events = is_event_stream(&response);
    let body = response.into_body();
    let text = if is_events {
        read_event(body).await?
    } else {
        read_whole(body).await?
    };
    Ok(Answer {
        status,
        upstream_session,
        text,
    })
}

/// Whether the body is a stream of server-sent events.
#[must_use]
pub fn is_event_stream<B>(response: &Response<B>) -> bool {
    response
        .headers()
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value
                .trim_start()
                .get(..17)
                .is_some_and(|essence| essence.eq_ignore_ascii_case("text/event-stream"))
        })
}

/// Reads a body whole, up to [`ANSWER_BYTES_MAX`].
///
/// # Errors
/// [`ExchangeError::Body`], [`ExchangeError::TooLarge`].
pub async fn read_whole(mut body: Body) -> Result<Bytes, ExchangeError> {
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ExchangeError::Body)?.into_data() else {
            continue;
        };
        if whole.len().saturating_add(data.len()) > ANSWER_BYTES_MAX {
            return Err(ExchangeError::TooLarge);
        }
        // Most answers are one frame, which needs no copy.
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(earlier) => {
                whole.extend_from_slice(&earlier);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// Reads events until one is a response. What else passes on the stream of a request of the gateway's own has no
/// reader.
async fn read_event(mut body: Body) -> Result<Bytes, ExchangeError> {
    let mut parser = EventParser::new(ANSWER_BYTES_MAX);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ExchangeError::Body)?.into_data() else {
            continue;
        };
        let mut answer = None;
        parser
            .push(&data, |event| {
                if answer.is_none() && is_response(&event.data) {
                    answer = Some(Bytes::copy_from_slice(event.data.as_bytes()));
                }
            })
            .map_err(|_| ExchangeError::TooLarge)?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
    }
    Err(ExchangeError::NoResponse)
}

fn is_response(text: &str) -> bool {
    Message::parse(text.as_bytes(), Sender::Upstream)
        .is_ok_and(|message| message.kind().is_response())
}

impl Answer {
    /// The response message, if the text is one.
    #[must_use]
    pub fn message(&self) -> Option<Message<'_>> {
        Message::parse(&self.text, Sender::Upstream).ok()
    }
}
