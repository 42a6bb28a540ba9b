//! One stream of a connection: its name in the log, and its reader.
//!
//! Invariants: a stream has at most one reader, the newest; messages without a reader stay in the log, if the stream
//! has event ids.

use std::sync::Arc;

use bytes::Bytes;

use super::log::{EventLog, EventPart, StreamTag};
use super::outbox::{End, Outbox};
use mooring_protocol::Event;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// `None` for a stream without event ids.
    tag: Option<Arc<StreamTag>>,
    outbox: Option<Outbox>,
}

impl Stream {
    /// A stream without a reader.
    pub(super) const fn new(tag: Option<Arc<StreamTag>>) -> Self {
        Self { tag, outbox: None }
    }

    /// Its name in the log.
    pub(super) const fn tag(&self) -> Option<&Arc<StreamTag>> {
        self.tag.as_ref()
    }

    /// Sets the reader. The previous one ends: the same client has opened the stream again.
    pub(super) fn attach(&mut self, outbox: Outbox) {
        if let Some(earlier) = self.outbox.replace(outbox) {
            earlier.end(End::Whole);
        }
    }

    /// Whether it has a reader.
    pub(super) fn is_read(&self) -> bool {
        self.outbox.as_ref().is_some_and(Outbox::is_read)
    }

    /// Whether messages can reach the client, now or after a resume.
    pub(super) fn is_reachable(&self) -> bool {
        self.tag.is_some() || self.is_read()
    }

    /// The number of unread events, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.outbox.as_ref().map_or((0, 0), Outbox::waiting)
    }

    /// Logs a message and queues it for the reader. A stream without event ids skips priming events.
    pub(super) fn push(&self, log: &mut EventLog, part: EventPart, data: Bytes) {
        let event = match &self.tag {
            Some(tag) => log.write(tag, part, data),
            None if part == EventPart::Priming => return,
            None => Event::message(data),
        };
        if let Some(outbox) = &self.outbox {
            outbox.push(event);
        }
    }

    /// Ends the reader's stream.
    pub(super) fn end(&mut self, end: End) {
        if let Some(outbox) = self.outbox.take() {
            outbox.end(end);
        }
    }

    /// Ends the stream of a slow reader.
    pub(super) fn cut(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            outbox.cut();
        }
    }
}
