//! Health probe of an upstream session: a ping over a new connection.
//!
//! Neither a reset of a reused connection nor a timeout proves a loss. A session is lost if the instance refuses
//! connections, or answers that it does not know the session.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use http::StatusCode;
use memchr::memmem;

use super::exchange::{Answer, within};
use super::request::Outgoing;
use super::{Client, ExchangeError, Instance, InstanceTransport, SendError, read_answer};
use mooring_protocol::{Event, Kind, Reply, ReplyBody};

/// Most pings of one probe. A process that is exiting accepts connections for a moment and resets them; the next ping
/// finds it alive or gone.
const ATTEMPTS_MAX: usize = 3;
/// Longest text that is read for an error about a session: such errors are short, and results are not searched.
const SESSION_ERROR_BYTES_MAX: usize = 1024;
/// The error codes with which servers say that they do not know a session. Both have other meanings too.
const SESSION_ERROR_CODES: [i64; 2] = [-32001, -32000];
/// Pause between the pings of a probe.
const RETRY_PAUSE: Duration = Duration::from_millis(40);

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The instance answers and knows the session.
    Alive,
    /// The instance refuses connections.
    InstanceLost,
    /// The instance answers and does not know the session: it was restarted or has dropped it.
    SessionLost,
    /// Unclear: a timeout or a server error.
    Unclear,
}

/// Sends `ping` (a POST with the stored upstream session id) and evaluates the answer. If the connection breaks, the
/// ping is repeated a few times.
pub async fn probe(
    client: &Client,
    instance: &Instance,
    ping: &Outgoing,
    limit: Duration,
) -> ProbeResult {
    let exchange = async {
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            match client.send_fresh(instance, ping).await {
                Ok(response) => {
                    let source = InstanceTransport { client, instance };
                    return read_answer(response, ping, &source).await;
                }
                Err(SendError::Broken(_)) if attempts_left > 0 => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    match within(limit, exchange).await {
        Ok(answer) if is_session_unknown(&answer) => ProbeResult::SessionLost,
        Ok(answer) if answer.status.is_success() => ProbeResult::Alive,
        Err(ExchangeError::Send(SendError::Refused)) => ProbeResult::InstanceLost,
        Ok(_) | Err(_) => ProbeResult::Unclear,
    }
}

/// Whether a reply to a request with a session id may mean that the session is unknown, so that its body is worth reading
/// for [`is_session_unknown`]. Of events, only one that came with the head is looked at: nothing waits for it.
#[must_use]
pub fn may_be_session_unknown(reply: &mut Reply) -> bool {
    match reply.status {
        StatusCode::NOT_FOUND
        | StatusCode::GONE
        | StatusCode::BAD_REQUEST
        | StatusCode::UNPROCESSABLE_ENTITY
        | StatusCode::UNAUTHORIZED
        | StatusCode::SERVICE_UNAVAILABLE => true,
        StatusCode::OK => match &mut reply.body {
            ReplyBody::Json(text) => may_be_error(text),
            ReplyBody::Events(events) => {
                let Some(Some(first)) = events.next().now_or_never() else {
                    return false;
                };
                let message = first.as_ref().ok().and_then(Event::as_message);
                let may_be_error = message.is_some_and(|message| may_be_error(message));
                let rest = std::mem::replace(events, Box::pin(stream::empty()));
                *events = Box::pin(stream::iter([first]).chain(rest));
                may_be_error
            }
            _ => false,
        },
        _ => false,
    }
}

/// Whether a message may be an error about a session: those are short.
fn may_be_error(text: &[u8]) -> bool {
    text.len() <= SESSION_ERROR_BYTES_MAX && memmem::find(text, b"\"error\"").is_some()
}

/// Whether the answer to a request with a session id means that the session is unknown: 404 by the protocol; in practice
/// also 410, 400 (unless the body is an error of a revision without sessions), and other statuses whose body says so. The
/// body is only a reason to ask: a ping decides.
#[must_use]
pub fn is_session_unknown(answer: &Answer) -> bool {
    let text = &answer.text;
    match answer.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => true,
        StatusCode::BAD_REQUEST => !is_modern_error(answer),
        // A ping would get the same answer where a credential is refused.
        StatusCode::UNAUTHORIZED => mentions(text, b"session not found"),
        StatusCode::UNPROCESSABLE_ENTITY => {
            mentions(text, b"session") || mentions(text, b"initialize")
        }
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::OK => is_session_error(answer),
        _ => false,
    }
}

/// Whether a short text has these words, in whatever case.
fn mentions(text: &[u8], words: &[u8]) -> bool {
    text.len() <= SESSION_ERROR_BYTES_MAX
        && memmem::find(&text.to_ascii_lowercase(), words).is_some()
}

/// Whether it is a JSON-RPC error about a session.
fn is_session_error(answer: &Answer) -> bool {
    #[derive(serde::Deserialize)]
    struct Error {
        code: i64,
        message: String,
    }
    if !mentions(&answer.text, b"session") {
        return false;
    }
    let message = answer.message();
    let error = (message.as_ref())
        .filter(|message| message.kind() == Kind::Error)
        .and_then(|message| serde_json::from_str::<Error>(message.outcome()?).ok());
    error.is_some_and(|error| {
        SESSION_ERROR_CODES.contains(&error.code) && mentions(error.message.as_bytes(), b"session")
    })
}

/// The error codes that MCP 2026-07-28 reserves concern the message, not the session.
fn is_modern_error(answer: &Answer) -> bool {
    #[derive(serde::Deserialize)]
    struct Error {
        code: i64,
    }
    answer
        .message()
        .and_then(|message| message.outcome().map(str::to_owned))
        .and_then(|error| serde_json::from_str::<Error>(&error).ok())
        .is_some_and(|error| (-32099..=-32020).contains(&error.code))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn unknown_session_answers() {
        let modern = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"header"}}"#;
        let legacy =
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}"#;
        let other =
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such session"}}"#;
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{"error":"Session not found"}}"#;
        for (status, text, unknown) in [
            (StatusCode::NOT_FOUND, "session not found", true),
            (StatusCode::NOT_FOUND, legacy, true),
            (StatusCode::BAD_REQUEST, legacy, true),
            (StatusCode::BAD_REQUEST, "", true),
            (StatusCode::BAD_REQUEST, modern, false),
            (StatusCode::GONE, "", true),
            (StatusCode::OK, legacy, true),
            (StatusCode::OK, other, false),
            (StatusCode::OK, result, false),
            (StatusCode::SERVICE_UNAVAILABLE, legacy, true),
            (StatusCode::SERVICE_UNAVAILABLE, "try later", false),
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                "Unexpected message, expect initialize request",
                true,
            ),
            (StatusCode::UNPROCESSABLE_ENTITY, "no such field", false),
            (StatusCode::INTERNAL_SERVER_ERROR, "", false),
            (StatusCode::UNAUTHORIZED, "", false),
            (StatusCode::UNAUTHORIZED, "your session has expired", false),
            (
                StatusCode::UNAUTHORIZED,
                "Unauthorized: Session not found",
                true,
            ),
        ] {
            let answer = Answer {
                status,
                upstream_session: None,
                text: Bytes::copy_from_slice(text.as_bytes()),
            };
            assert_eq!(is_session_unknown(&answer), unknown, "{status} {text}");
            let mut reply = Reply::json(status, text);
            assert!(
                may_be_session_unknown(&mut reply) || !unknown,
                "{status} {text}"
            );
        }
    }
}
