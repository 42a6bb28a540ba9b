//! What a server says: the events of its stream, one after another.
//!
//! Invariant: what is neither `endpoint` nor `message` has no meaning in this protocol and is passed over.

use bytes::Bytes;
use futures_util::StreamExt;

use crate::connection::link::LinkEnd;
use mooring_protocol::{Event, EventError, EventStream, ReplyError};

/// What a server says.
#[derive(Debug)]
pub(super) enum ServerEvent {
    /// Where messages to it are POSTed, as it wrote it.
    Endpoint(Box<str>),
    /// A message, as one JSON text without a newline.
    Message(Bytes),
}

/// Why a server says nothing more.
#[derive(Debug, thiserror::Error)]
pub enum StreamEnd {
    /// It ended the stream.
    #[error("the server ended its event stream")]
    Ended,
    /// The stream broke, or an event is longer than is taken.
    #[error("the event stream broke")]
    Broke(#[from] ReplyError),
}

impl From<StreamEnd> for LinkEnd {
    fn from(end: StreamEnd) -> Self {
        match end {
            StreamEnd::Ended => Self::Broken(end.to_string().into()),
            StreamEnd::Broke(ReplyError::Event(EventError::TooLong { event_bytes_max })) => {
                Self::MessageTooLong {
                    bytes_max: event_bytes_max,
                }
            }
            StreamEnd::Broke(cause) => {
                Self::Broken(format!("the event stream broke: {cause}").into())
            }
        }
    }
}

/// The next thing that the server says.
pub(super) async fn next_event(events: &mut EventStream) -> Result<ServerEvent, StreamEnd> {
    loop {
        let event = events.next().await.ok_or(StreamEnd::Ended)?;
        if let Some(said) = server_event(event?) {
            return Ok(said);
        }
    }
}

fn server_event(event: Event) -> Option<ServerEvent> {
    if let Some(message) = event.as_message() {
        return Some(ServerEvent::Message(on_one_line(message)));
    }
    match (event.event.as_deref(), event.data) {
        (Some("endpoint"), Some(data)) => {
            Some(ServerEvent::Endpoint(String::from_utf8_lossy(&data).into()))
        }
        // An event that only sets an id or a delay holds no message.
        (None | Some("" | "message"), _) | (_, None) => None,
        (Some(_), Some(_)) => {
            tracing::debug!("an event of a type that the protocol does not have was passed over");
            None
        }
    }
}

/// A line break in JSON text can only stand between its parts, where a space means the same.
fn on_one_line(json: &Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', json).is_none() {
        return json.clone();
    }
    let mut text = json.to_vec();
    for byte in &mut text {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    Bytes::from(text)
}
