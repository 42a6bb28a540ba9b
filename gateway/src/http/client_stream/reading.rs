//! Reading the reply to a client's message: what of it goes onto the stream, and how it ends.
//!
//! Invariant: only messages go onto the stream, and of a reply to a request nothing does after its answer.

use std::ops::ControlFlow;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::answering::StreamContext;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{Id, Message, Reply, ReplyMessages};

/// How long to wait before the rest of a reply is asked for, where the server does not say.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
/// ... and at most, whatever the server says.
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How the reading of one reply ended.
pub(super) enum ReplyEnd {
    /// Nothing is left to be said.
    Done,
    /// It ended early.
    Early(EarlyEnd),
}

/// What a reply that ended early said about going on.
pub(super) struct EarlyEnd {
    pub(super) status: StatusCode,
    pub(super) last_event_id: Option<HeaderValue>,
    pub(super) pause: Duration,
    /// The `error` of an answer that names no request.
    pub(super) nameless_error: Option<Box<str>>,
    pub(super) said_something: bool,
}

/// Writes the messages of one reply onto the stream, up to the answer to `awaited`, or all of them where nothing is.
pub(super) async fn pass_on(
    context: &StreamContext,
    awaited: Option<Id<'_>>,
    reply: Reply,
) -> ReplyEnd {
    let mut messages = ReplyMessages::of(reply, context.app.relay.message_bytes_max);
    let mut nameless_error = None;
    let mut said_something = false;
    loop {
        match messages.next().await {
            Ok(Some(text)) => {
                let Some(stateful) = part_of(&text, awaited) else {
                    continue;
                };
                match stateful {
                    Part::NamelessError(error) => nameless_error = Some(error),
                    Part::Message(flow) => {
                        said_something = true;
                        let text = String::from_utf8_lossy(&text);
                        if context.stream.say(&text).await.is_err() || flow.is_break() {
                            return ReplyEnd::Done;
                        }
                    }
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::info!(session = %context.stream.session.digest, %error, "a reply broke off");
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
        said_something,
    })
}

/// What a text of a reply is to the stream.
enum Part {
    /// It goes onto it, and with it perhaps the answer.
    Message(ControlFlow<()>),
    /// An error that names no request: in a reply, it is about the request.
    NamelessError(Box<str>),
}

/// None for what is no message, which has no place on the stream.
fn part_of(text: &[u8], awaited: Option<Id<'_>>) -> Option<Part> {
    let message = match Message::parse(text, Sender::Upstream) {
        Ok(message) => message,
        Err(error) => {
            tracing::warn!(%error, "a reply to a legacy client holds what is no message; it is dropped");
            return None;
        }
    };
    let is_response = message.kind().is_response();
    if is_response && message.id().is_none() {
        let error = message.outcome().unwrap_or("{}");
        tracing::warn!(%error, "an error that names no request");
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
