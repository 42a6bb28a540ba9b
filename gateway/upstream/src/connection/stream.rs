//! One stream of a connection: what it is called in the log, and who reads it.
//!
//! Invariants: at most one reply reads a stream, the newest; what is said on a stream that nobody reads stays in the log,
//! where the stream has event ids.

use std::sync::Arc;

use bytes::Bytes;

use super::log::{EventLog, EventPart, StreamTag};
use super::outbox::{End, Outbox};
use mooring_protocol::Event;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// None for a stream without event ids.
    tag: Option<Arc<StreamTag>>,
    outbox: Option<Outbox>,
}

impl Stream {
    /// A stream that nobody reads yet.
    pub(super) const fn new(tag: Option<Arc<StreamTag>>) -> Self {
        Self { tag, outbox: None }
    }

    /// Its name in the log.
    pub(super) const fn tag(&self) -> Option<&Arc<StreamTag>> {
        self.tag.as_ref()
    }

    /// Gives it a reader. The one before has no more to come: its client is the one who asks now.
    pub(super) fn attach(&mut self, outbox: Outbox) {
        if let Some(earlier) = self.outbox.replace(outbox) {
            earlier.end(End::Whole);
        }
    }

    /// Whether somebody reads it.
    pub(super) fn is_read(&self) -> bool {
        self.outbox.as_ref().is_some_and(Outbox::is_read)
    }

    /// Whether what is said can reach the client, now or by a resume.
    pub(super) fn is_heard(&self) -> bool {
        self.tag.is_some() || self.is_read()
    }

    /// How much waits for its reader: events, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.outbox.as_ref().map_or((0, 0), Outbox::waiting)
    }

    /// Puts a message on it. Without event ids there is nothing to prime.
    pub(super) fn say(&self, log: &mut EventLog, part: EventPart, data: Bytes) {
        let event = match &self.tag {
            Some(tag) => log.write(tag, part, data),
            None if part == EventPart::Priming => return,
            None => Event::message(data),
        };
        if let Some(outbox) = &self.outbox {
            outbox.push(event);
        }
    }

    /// Ends what its reader reads.
    pub(super) fn end(&mut self, end: End) {
        if let Some(outbox) = self.outbox.take() {
            outbox.end(end);
        }
    }

    /// Ends it for a reader that is too slow.
    pub(super) fn cut(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            outbox.cut();
        }
    }
}
