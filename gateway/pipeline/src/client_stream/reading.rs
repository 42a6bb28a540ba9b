//! Reads the reply to a client's message and writes its messages onto the client's stream.
//!
//! Invariant: only JSON-RPC messages are written, and nothing of a reply after the response.

use std::ops::ControlFlow;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::stream_context::StreamContext;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{Id, Message, Reply, ReplyMessages};

/// Pause before an interrupted reply is resumed, unless the server specifies one.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause, whatever the server specifies.
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How the reading of one reply ended.
pub(super) enum ReplyEnd {
    /// The reply is complete.
    Done,
    /// It was interrupted.
    Early(EarlyEnd),
}

/// How a reply was interrupted.
pub(super) struct EarlyEnd {
    pub(super) status: StatusCode,
    pub(super) last_event_id: Option<HeaderValue>,
    pub(super) pause: Duration,
    /// The `error` of a response without a request id.
    pub(super) nameless_error: Option<Box<str>>,
    pub(super) had_messages: bool,
}

/// Writes the messages of one reply onto the stream, up to the response to `awaited`, or all of them if there is none.
pub(super) async fn write_reply(
    context: &StreamContext,
    awaited: Option<Id<'_>>,
    reply: Reply,
) -> ReplyEnd {
    let mut messages = ReplyMessages::of(reply, context.directory.core.relay.message_bytes_max);
    let mut nameless_error = None;
    let mut had_messages = false;
    loop {
        match messages.next().await {
            Ok(Some(text)) => {
                let Some(part) = part_of(&text, awaited) else {
                    continue;
                };
                match part {
                    Part::NamelessError(error) => nameless_error = Some(error),
                    Part::Message(flow) => {
                        had_messages = true;
                        let text = String::from_utf8_lossy(&text);
                        let sending = context.stream.send(&text, messages.take_held());
                        if sending.await.is_err() || flow.is_break() {
                            return ReplyEnd::Done;
                        }
                    }
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::info!(session = %context.stream.session.digest, %error, "a reply was interrupted");
                break;
            }
        }
    }
    let pause = messages.retry.unwrap_or(RESUME_PAUSE);
    let last_event_id = messages.last_event_id.as_deref();
    ReplyEnd::Early(EarlyEnd {
        status: messages.status,
        last_event_id: last_event_id.and_then(|id| HeaderValue::from_str(id).ok()),
        pause: pause.min(RESUME_PAUSE_MAX),
        nameless_error,
        had_messages,
    })
}

/// A message of a reply.
enum Part {
    /// Written onto the stream. Breaks if it is the awaited response.
    Message(ControlFlow<()>),
    /// An error without a request id: within a reply, it is about the request.
    NamelessError(Box<str>),
}

/// None for anything but a JSON-RPC message.
fn part_of(text: &[u8], awaited: Option<Id<'_>>) -> Option<Part> {
    let message = match Message::parse(text, Sender::Upstream) {
        Ok(message) => message,
        Err(error) => {
            tracing::warn!(%error, "a reply contained an invalid message, which was dropped");
            return None;
        }
    };
    let is_response = message.kind().is_response();
    if is_response && message.id().is_none() {
        let error = message.outcome().unwrap_or("{}");
        tracing::warn!(%error, "a reply contained an error without a request id");
        return Some(Part::NamelessError(error.into()));
    }
    let is_answer = is_response && awaited.is_some() && message.id() == awaited;
    Some(Part::Message(if is_answer {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_answer_is_told_from_what_comes_before_it() {
        let awaited = Id::from_json("1").ok();
        let is_answer = |text: &str| match part_of(text.as_bytes(), awaited) {
            Some(Part::Message(flow)) => Some(flow.is_break()),
            _ => None,
        };
        assert_eq!(
            is_answer(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            Some(true)
        );
        assert_eq!(
            is_answer(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#),
            Some(false)
        );
        assert_eq!(
            is_answer(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#),
            Some(false)
        );
        assert_eq!(is_answer("Bad Request"), None);
        let nameless = r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#;
        assert!(matches!(
            part_of(nameless.as_bytes(), awaited),
            Some(Part::NamelessError(_))
        ));
    }
}
