//! Turns the event stream of an upstream into that of a client.
//!
//! Every event's data is one JSON-RPC message, which is rewritten and shown to the caller, who
//! decides whether it passes. Everything else (`id`, `event`, `retry`, unknown fields and comments)
//! goes on as soon as its line has arrived, so that keep-alives and resumption work end to end;
//! only line ends are made uniform. Invariant: the output holds the same events in the same order,
//! whatever the chunks are; a dropped event still sets its id.

use bytes::Bytes;

use super::envelope::{EnvelopeError, Message, Sender};
use super::event::{Block, EventError, Line, Lines, put_data};
use super::mark::{self, Rebound};
use super::marker::Marker;
use super::rewrite::{Downward, RewriteError, rewrite_down};

/// An upstream event, and the form in which the client will see it.
#[derive(Debug)]
pub enum RewrittenEvent<'e> {
    /// A message, and the form in which the client will see it.
    Message {
        /// The message as the upstream sent it.
        message: &'e Message<'e>,
        /// The message as the client will see it.
        down: &'e Downward<'e>,
        /// The event's id.
        event_id: Option<&'e str>,
    },
    /// An event of a type other than `message`; its data need not be JSON.
    OtherType {
        /// The type.
        event: &'e str,
        /// The data.
        data: &'e [u8],
    },
    /// Data that is no message. Passing it would hand the client something that the gateway does not
    /// understand, so that it is dropped whatever the verdict is.
    NotAMessage(&'e EnvelopeError),
    /// A message that cannot be rewritten; it is dropped whatever the verdict is.
    NotRewritable(&'e RewriteError),
}

/// What happens with an event.
#[derive(Debug, Clone, Copy)]
pub enum Verdict<'v> {
    /// It goes to the client.
    Pass,
    /// It does not, because the gateway has answered it or it was not meant for the client.
    Drop,
    /// It goes to the client with the mark of lost state, if it is a result that can carry it.
    Mark(&'v Rebound<'v>),
}

/// The state of one stream.
#[derive(Debug)]
pub struct SseRewriter {
    lines: Lines,
    block: Block,
    /// Whether lines of the block at hand have gone out.
    in_block: bool,
    has_event_ids: bool,
    marker: Marker,
    event_bytes_max: usize,
}

impl SseRewriter {
    /// A rewriter at the start of a stream that came over the marker's binding. Events longer than
    /// `event_bytes_max` are refused.
    #[must_use]
    pub fn new(marker: Marker, event_bytes_max: usize) -> Self {
        Self {
            lines: Lines::new(event_bytes_max),
            block: Block::default(),
            in_block: false,
            has_event_ids: false,
            marker,
            event_bytes_max,
        }
    }

    /// Whether events of the gateway may be put between what has gone out and what comes next.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        !self.in_block
    }

    /// Whether an event named an id by which the stream can be resumed. The first one to do so is often empty: it
    /// primes the client (MCP 2025-11-25, transports).
    #[must_use]
    pub fn has_event_ids(&self) -> bool {
        self.has_event_ids
    }

    /// Takes the next chunk and returns what can be sent on, which may be nothing. `judge` is asked
    /// about every event with data.
    ///
    /// # Errors
    /// [`EventError`]; the stream must then be cut.
    pub fn push<'v>(
        &mut self,
        chunk: &[u8],
        mut judge: impl FnMut(&RewrittenEvent<'_>) -> Verdict<'v>,
    ) -> Result<Bytes, EventError> {
        let mut out = Vec::with_capacity(chunk.len() + 16);
        let Self {
            lines,
            block,
            in_block,
            has_event_ids,
            marker,
            event_bytes_max,
        } = self;
        lines.feed(chunk, |line| {
            match block.line(line, *event_bytes_max)? {
                Line::Data => {}
                Line::Other => {
                    out.extend_from_slice(line);
                    out.push(b'\n');
                    // A comment alone is no block: it may stand anywhere.
                    *in_block |= !line.starts_with(b":");
                }
                Line::End => {
                    *has_event_ids |= block.id.as_deref().is_some_and(|id| !id.is_empty());
                    let wrote =
                        block.has_data && write_with_verdict(block, marker, &mut judge, &mut out);
                    if wrote || *in_block || !block.has_data {
                        out.push(b'\n');
                    }
                    *in_block = false;
                    block.clear();
                }
            }
            Ok(())
        })?;
        Ok(Bytes::from(out))
    }
}

/// Writes the data of a finished block as it is judged; returns whether any was written.
fn write_with_verdict<'v>(
    block: &Block,
    marker: &Marker,
    judge: &mut impl FnMut(&RewrittenEvent<'_>) -> Verdict<'v>,
    out: &mut Vec<u8>,
) -> bool {
    if block.data.is_empty() {
        put_data(out, b"");
        return true;
    }
    if let Some(event) = block.event.as_deref()
        && !matches!(event, "" | "message")
    {
        let data = block.data.as_slice();
        if matches!(
            judge(&RewrittenEvent::OtherType { event, data }),
            Verdict::Drop
        ) {
            return false;
        }
        put_data(out, data);
        return true;
    }
    let message = match Message::parse(&block.data, Sender::Upstream) {
        Ok(message) => message,
        Err(error) => {
            judge(&RewrittenEvent::NotAMessage(&error));
            return false;
        }
    };
    let down = match rewrite_down(&message, marker) {
        Ok(down) => down,
        Err(error) => {
            judge(&RewrittenEvent::NotRewritable(&error));
            return false;
        }
    };
    let verdict = judge(&RewrittenEvent::Message {
        message: &message,
        down: &down,
        event_id: block.id.as_deref(),
    });
    match verdict {
        Verdict::Drop => return false,
        Verdict::Pass => put_data(out, down.text.as_bytes()),
        Verdict::Mark(rebound) => match mark::mark_result(&down.text, rebound) {
            Some(marked) => put_data(out, marked.as_bytes()),
            None => put_data(out, down.text.as_bytes()),
        },
    }
    true
}
