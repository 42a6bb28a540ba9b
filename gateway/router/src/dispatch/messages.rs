//! A reply of Streamable HTTP, taken apart into its messages.
//!
//! Invariant: a message is bounded by `message_bytes_max`, whether it comes as JSON or as an event.

use std::collections::VecDeque;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{BodyError, ReplyBody};
use mooring_protocol::{EventError, EventParser};
use mooring_upstream::is_event_stream;

/// Why the rest of a reply cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It broke off.
    #[error(transparent)]
    Broke(BodyError),
    /// A message is too long for an event.
    #[error("the reply is longer than {0} bytes")]
    TooLong(usize),
    /// An event is too long.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// The messages of a reply, one after another.
pub struct ReplyMessages {
    /// The status of the reply.
    pub status: StatusCode,
    /// The id of the last event; by it the rest of a reply could be asked for.
    pub last_event_id: Option<Box<str>>,
    /// How long whoever asks for the rest is to wait.
    pub retry: Option<Duration>,
    form: Form,
    message_bytes_max: usize,
}

enum Form {
    /// One message, or nothing.
    Whole(ReplyBody),
    Events {
        body: ReplyBody,
        parser: Box<EventParser>,
        arrived: VecDeque<Box<str>>,
    },
    Over,
}

impl ReplyMessages {
    /// The messages of this reply.
    #[must_use]
    pub fn of(reply: Response<ReplyBody>, message_bytes_max: usize) -> Self {
        let status = reply.status();
        let is_events = is_event_stream(&reply);
        let body = reply.into_body();
        let form = if is_events {
            Form::Events {
                body,
                parser: Box::new(EventParser::new(message_bytes_max)),
                arrived: VecDeque::new(),
            }
        } else {
            Form::Whole(body)
        };
        Self {
            status,
            last_event_id: None,
            retry: None,
            form,
            message_bytes_max,
        }
    }

    /// Whether the reply is a stream of events.
    #[must_use]
    pub const fn is_events(&self) -> bool {
        matches!(self.form, Form::Events { .. })
    }

    /// The next message; none at the end. What is not an event is handed out as it is, message or not.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn next(&mut self) -> Result<Option<Box<str>>, ReadError> {
        loop {
            let (body, parser, arrived) = match &mut self.form {
                Form::Whole(_) => return self.whole().await,
                Form::Over => return Ok(None),
                Form::Events {
                    body,
                    parser,
                    arrived,
                } => (body, parser, arrived),
            };
            if let Some(message) = arrived.pop_front() {
                return Ok(Some(message));
            }
            let Some(frame) = body.frame().await else {
                self.form = Form::Over;
                continue;
            };
            let frame = frame.map_err(ReadError::Broke)?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            let (last_event_id, retry) = (&mut self.last_event_id, &mut self.retry);
            parser.push(&chunk, |event| {
                if let Some(id) = event.id {
                    *last_event_id = (!id.is_empty()).then(|| id.into());
                }
                if let Some(retry_ms) = event.retry_ms {
                    *retry = Some(Duration::from_millis(retry_ms));
                }
                let is_message = matches!(event.event.as_deref(), None | Some("message"));
                if is_message && !event.data.is_empty() {
                    arrived.push_back(event.data.into());
                }
            })?;
        }
    }

    async fn whole(&mut self) -> Result<Option<Box<str>>, ReadError> {
        let Form::Whole(body) = std::mem::replace(&mut self.form, Form::Over) else {
            return Ok(None);
        };
        let limit = self.message_bytes_max;
        let whole = Limited::new(body, limit).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                ReadError::TooLong(limit)
            } else {
                ReadError::Broke(BodyError(error))
            }
        })?;
        let text = String::from_utf8_lossy(&whole.to_bytes()).into_owned();
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;

    fn reply(content_type: &str, chunks: &[&'static str]) -> Response<ReplyBody> {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok::<_, BodyError>(Frame::data(Bytes::from_static(chunk.as_bytes()))))
            .collect();
        Response::builder()
            .header("content-type", content_type)
            .body(StreamBody::new(futures_util::stream::iter(chunks)).boxed_unsync())
            .unwrap()
    }

    async fn all(messages: &mut ReplyMessages) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(message) = messages.next().await.unwrap() {
            all.push(message.into_string());
        }
        all
    }

    #[tokio::test]
    async fn json_is_one_message_and_nothing_is_none() {
        let mut messages = ReplyMessages::of(reply("application/json", &["{\"a\"", ":1}"]), 7);
        assert!(!messages.is_events());
        assert_eq!(all(&mut messages).await, ["{\"a\":1}"]);
        let mut messages = ReplyMessages::of(reply("application/json", &[]), 7);
        assert!(all(&mut messages).await.is_empty());
        let mut messages = ReplyMessages::of(reply("application/json", &["{\"a\"", ":11}"]), 7);
        assert!(matches!(messages.next().await, Err(ReadError::TooLong(7))));
    }

    #[tokio::test]
    async fn events_are_messages_and_say_where_to_go_on() {
        let chunks = [
            "id: 1\nretry: 5\ndata:\n\n: x\n\nevent: message\nid: 2\nda",
            "ta: {\"a\":1}\n\nevent: other\ndata: {}\n\ndata: {\"b\":2}\n\ndata: {\"cut",
        ];
        let mut messages = ReplyMessages::of(reply("text/event-stream", &chunks), 100);
        assert!(messages.is_events());
        let expected = ["{\"a\":1}", "{\"b\":2}"];
        assert_eq!(all(&mut messages).await, expected);
        assert_eq!(messages.last_event_id.as_deref(), Some("2"));
        assert_eq!(messages.retry, Some(Duration::from_millis(5)));
    }

    #[tokio::test]
    async fn an_event_without_end_is_not_kept() {
        let chunks = ["data: 0123456789", "0123456789\n\n"];
        let mut messages = ReplyMessages::of(reply("text/event-stream", &chunks), 16);
        assert!(matches!(messages.next().await, Err(ReadError::Event(_))));
    }
}
