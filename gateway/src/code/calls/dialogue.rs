//! The reply to a call, message by message, whether it comes as JSON or as events.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt;

use crate::dispatch::ReplyBody;
use crate::mcp::EventParser;
use crate::upstream::is_event_stream;

/// Longest message of a reply.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a reply could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialogueError {
    /// The connection broke.
    #[error("the reply broke off")]
    Broken,
    /// A message is longer than [`MESSAGE_BYTES_MAX`].
    #[error("a message of the reply is longer than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
}

/// A reply that is being read.
pub(crate) struct Dialogue {
    status: StatusCode,
    body: ReplyBody,
    form: Form,
}

/// What the body is.
enum Form {
    /// One message.
    Json { read: Vec<u8> },
    /// Events, each with a message.
    Events {
        parser: EventParser,
        waiting: VecDeque<Box<str>>,
    },
    /// Nothing more.
    Over,
}

impl Dialogue {
    pub(crate) fn new(reply: Response<ReplyBody>) -> Self {
        let form = if is_event_stream(&reply) {
            Form::Events {
                parser: EventParser::new(MESSAGE_BYTES_MAX),
                waiting: VecDeque::new(),
            }
        } else {
            Form::Json { read: Vec::new() }
        };
        Self {
            status: reply.status(),
            body: reply.into_body(),
            form,
        }
    }

    /// The reply's status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The next message; none at the end of the reply.
    ///
    /// # Errors
    /// See [`DialogueError`]; nothing more can be read then.
    pub(crate) async fn next(&mut self) -> Result<Option<Box<str>>, DialogueError> {
        loop {
            if let Form::Events { waiting, .. } = &mut self.form
                && let Some(message) = waiting.pop_front()
            {
                return Ok(Some(message));
            }
            match self.chunk().await? {
                Some(chunk) => self.take(&chunk)?,
                None => return Ok(self.finish()),
            }
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, DialogueError> {
        while let Some(frame) = self.body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => return Ok(Some(data)),
                // Trailers say nothing.
                Ok(Err(_)) => {}
                Err(_) => {
                    self.form = Form::Over;
                    return Err(DialogueError::Broken);
                }
            }
        }
        Ok(None)
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), DialogueError> {
        match &mut self.form {
            Form::Json { read } if read.len().saturating_add(chunk.len()) <= MESSAGE_BYTES_MAX => {
                read.extend_from_slice(chunk);
                Ok(())
            }
            Form::Json { .. } => Err(DialogueError::TooLarge),
            Form::Events { parser, waiting } => parser
                .push(chunk, |event| {
                    if !event.data.is_empty() {
                        waiting.push_back(event.data.as_ref().into());
                    }
                })
                .map_err(|_| DialogueError::TooLarge),
            Form::Over => Ok(()),
        }
    }

    fn finish(&mut self) -> Option<Box<str>> {
        match std::mem::replace(&mut self.form, Form::Over) {
            Form::Json { read } if !read.is_empty() => Some(String::from_utf8_lossy(&read).into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn reply(content_type: &str, body: &'static str) -> Dialogue {
        let reply = Response::builder().header("content-type", content_type);
        Dialogue::new(reply.body(ReplyBody::from(body)).unwrap())
    }

    #[tokio::test]
    async fn messages_come_one_by_one_in_either_form() {
        let mut json = reply("application/json", "{\"a\":1}");
        assert_eq!(json.next().await.unwrap().as_deref(), Some("{\"a\":1}"));
        assert_eq!(json.next().await.unwrap(), None);
        let mut events = reply(
            "text/event-stream",
            "id: 1\ndata:\n\n: alive\n\ndata: {\"a\":1}\n\ndata: {\"b\":2}\n\n",
        );
        assert_eq!(events.next().await.unwrap().as_deref(), Some("{\"a\":1}"));
        assert_eq!(events.next().await.unwrap().as_deref(), Some("{\"b\":2}"));
        assert_eq!(events.next().await.unwrap(), None);
        assert_eq!(reply("application/json", "").next().await.unwrap(), None);
    }
}
