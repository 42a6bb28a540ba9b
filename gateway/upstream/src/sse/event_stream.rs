//! What a server says: the events of its stream, one after another.
//!
//! Invariant: memory is bounded by one event and one chunk of the stream; what is neither `endpoint` nor `message` has
//! no meaning in this protocol and is passed over.

use std::collections::VecDeque;

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::connection::link::LinkEnd;
use crate::{Body, BodyError};
use mooring_protocol::{Event, EventError, EventParser};

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
    /// The stream broke.
    #[error("the event stream broke")]
    Broke(#[source] BodyError),
    /// An event is longer than is taken.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl From<StreamEnd> for LinkEnd {
    fn from(end: StreamEnd) -> Self {
        match end {
            StreamEnd::Ended => Self::Broken(end.to_string().into()),
            StreamEnd::Broke(cause) => {
                Self::Broken(format!("the event stream broke: {cause}").into())
            }
            StreamEnd::Event(EventError::TooLong { event_bytes_max }) => Self::MessageTooLong {
                bytes_max: event_bytes_max,
            },
        }
    }
}

/// The event stream of one session.
pub(super) struct EventStream {
    body: Body,
    parser: EventParser,
    /// The events of the chunk that arrived last.
    arrived: VecDeque<ServerEvent>,
}

impl EventStream {
    /// The stream over the body of a response.
    pub(super) fn new(body: Body, event_bytes_max: usize) -> Self {
        Self {
            body,
            parser: EventParser::new(event_bytes_max),
            arrived: VecDeque::new(),
        }
    }

    /// The next thing that the server says.
    pub(super) async fn next(&mut self) -> Result<ServerEvent, StreamEnd> {
        loop {
            if let Some(said) = self.arrived.pop_front() {
                return Ok(said);
            }
            let frame = self.body.frame().await.ok_or(StreamEnd::Ended)?;
            let Ok(chunk) = frame.map_err(StreamEnd::Broke)?.into_data() else {
                continue;
            };
            let arrived = &mut self.arrived;
            self.parser
                .push(&chunk, |event| arrived.extend(said(&event)))?;
        }
    }
}

fn said(event: &Event<'_>) -> Option<ServerEvent> {
    match event.event.as_deref() {
        Some("endpoint") => Some(ServerEvent::Endpoint(event.data.as_ref().into())),
        // An event that only sets an id or a delay holds no message.
        None | Some("message") if !event.data.is_empty() => {
            Some(ServerEvent::Message(on_one_line(&event.data)))
        }
        None | Some("message") => None,
        Some(_) => {
            tracing::debug!("an event of a type that the protocol does not have was passed over");
            None
        }
    }
}

/// A line break in JSON text can only stand between its parts, where a space means the same.
fn on_one_line(json: &str) -> Bytes {
    let mut text = json.as_bytes().to_vec();
    for byte in &mut text {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    Bytes::from(text)
}
