//! The events of a server's stream.
//!
//! Invariant: only `endpoint` and `message` events have a meaning; all others are ignored.

use bytes::Bytes;
use futures_util::StreamExt;

use crate::connection::link::{LinkEnd, one_line};
use mooring_protocol::{Event, EventStream, EventTooLong, ReplyError};

/// An event of the server.
#[derive(Debug)]
pub(super) enum ServerEvent {
    /// The URI for POSTs, as the server wrote it.
    Endpoint(Box<str>),
    /// A message, as one JSON text without a newline.
    Message(Bytes),
    /// An event that exceeds the limit, and was skipped.
    TooLong(EventTooLong),
}

/// Why the stream has ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamEnd {
    /// The server ended it.
    #[error("the server ended its event stream")]
    Ended,
    /// It broke.
    #[error("the event stream broke")]
    Broke(#[source] ReplyError),
}

impl From<StreamEnd> for LinkEnd {
    fn from(end: StreamEnd) -> Self {
        match end {
            StreamEnd::Ended => Self::Broken(end.to_string().into()),
            StreamEnd::Broke(cause) => {
                Self::Broken(format!("the event stream broke: {cause}").into())
            }
        }
    }
}

/// The next endpoint or message event, or what is known of one that was skipped.
pub(super) async fn next_event(events: &mut EventStream) -> Result<ServerEvent, StreamEnd> {
    loop {
        let event = match events.next().await.ok_or(StreamEnd::Ended)? {
            Ok(event) => event,
            Err(ReplyError::Event(too_long)) => return Ok(ServerEvent::TooLong(too_long)),
            Err(error) => return Err(StreamEnd::Broke(error)),
        };
        if let Some(said) = server_event(event) {
            return Ok(said);
        }
    }
}

fn server_event(event: Event) -> Option<ServerEvent> {
    if let Some(message) = event.as_message() {
        return Some(ServerEvent::Message(one_line(message.clone())));
    }
    match (event.event.as_deref(), event.data) {
        (Some("endpoint"), Some(data)) => {
            Some(ServerEvent::Endpoint(String::from_utf8_lossy(&data).into()))
        }
        // An event that only sets an id or a delay has no message.
        (None | Some("" | "message"), _) | (_, None) => None,
        (Some(_), Some(_)) => {
            tracing::debug!("ignored an event of an unknown type");
            None
        }
    }
}
