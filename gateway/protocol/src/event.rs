//! Server-sent events: reading them from chunks, and writing them.
//!
//! The rules are those of the WHATWG HTML standard, 9.2.6 "Interpreting an event stream": lines end
//! with CR, LF or both; a leading byte order mark is dropped; `data` lines are joined with a line
//! feed; an `id` that contains NUL and a `retry` that is not all digits are ignored; a block that the
//! end of the stream cuts short is not an event. Invariant: memory is bounded by `event_bytes_max`.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::{memchr, memchr2};
use thiserror::Error;

/// Why the rest of a stream cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EventError {
    /// One event, or one line, is longer than the limit.
    #[error("an event of the stream is longer than {event_bytes_max} bytes")]
    TooLong {
        /// The limit, in bytes.
        event_bytes_max: usize,
    },
}

/// Splits a byte stream into lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The last line ended with a carriage return, so that a line feed next belongs to it.
    after_return: bool,
    /// No line has ended yet.
    first: bool,
    line_bytes_max: usize,
}

impl Lines {
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self {
            partial: Vec::new(),
            after_return: false,
            first: true,
            line_bytes_max,
        }
    }

    /// Hands every line that ends in this chunk, without its end, to `on_line`.
    pub(super) fn feed(
        &mut self,
        mut chunk: &[u8],
        mut on_line: impl FnMut(&[u8]) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        loop {
            if self.after_return
                && let Some((first, rest)) = chunk.split_first()
            {
                self.after_return = false;
                if *first == b'\n' {
                    chunk = rest;
                }
            }
            let end = memchr2(b'\r', b'\n', chunk);
            let (line, rest) = chunk
                .split_at_checked(end.unwrap_or(chunk.len()))
                .unwrap_or((chunk, &[]));
            if self.partial.len() + line.len() > self.line_bytes_max {
                return Err(EventError::TooLong {
                    event_bytes_max: self.line_bytes_max,
                });
            }
            let Some((terminator, rest)) = rest.split_first() else {
                self.partial.extend_from_slice(line);
                return Ok(());
            };
            self.after_return = *terminator == b'\r';
            chunk = rest;
            let first = std::mem::take(&mut self.first);
            let without_mark = |line: &[u8]| -> usize {
                if first && line.starts_with(b"\xef\xbb\xbf") {
                    3
                } else {
                    0
                }
            };
            if self.partial.is_empty() {
                on_line(line.get(without_mark(line)..).unwrap_or_default())?;
            } else {
                self.partial.extend_from_slice(line);
                let result = on_line(
                    self.partial
                        .get(without_mark(&self.partial)..)
                        .unwrap_or_default(),
                );
                self.partial.clear();
                result?;
            }
        }
    }
}

/// What a line was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// The empty line that ends a block.
    End,
    /// A line of data; it was added to the block's.
    Data,
    /// A comment, another field, or an unknown one.
    Other,
}

/// The fields of the block that is being read.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) id: Option<String>,
    pub(super) event: Option<String>,
    pub(super) retry_ms: Option<u64>,
    pub(super) data: Vec<u8>,
    /// Whether there was a `data` line, which may have been empty.
    pub(super) has_data: bool,
}

impl Block {
    /// Takes one line, without its end.
    pub(super) fn line(&mut self, line: &[u8], event_bytes_max: usize) -> Result<Line, EventError> {
        if line.is_empty() {
            return Ok(Line::End);
        }
        let (name, value) = match memchr(b':', line).and_then(|at| line.split_at_checked(at)) {
            Some((name, value)) => {
                let value = value.strip_prefix(b":").unwrap_or(value);
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[] as &[u8]),
        };
        match name {
            b"data" => {
                if self.data.len() + value.len() + 1 > event_bytes_max {
                    return Err(EventError::TooLong { event_bytes_max });
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
                return Ok(Line::Data);
            }
            b"id" if memchr(0, value).is_none() => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"event" => self.event = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = std::str::from_utf8(value)
                    .ok()
                    .and_then(|value| value.parse().ok());
            }
            _ => {}
        }
        Ok(Line::Other)
    }

    /// Forgets the block but keeps the memory of its data.
    pub(super) fn clear(&mut self) {
        self.data.clear();
        self.has_data = false;
        self.id = None;
        self.event = None;
        self.retry_ms = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_data && self.id.is_none() && self.event.is_none() && self.retry_ms.is_none()
    }
}

/// One event. Unlike a browser, which dispatches only events with data, the gateway also sees blocks
/// that only set the id or the delay, because they are sent on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event<'a> {
    /// The event's own id; the id of an event without one is that of the event before.
    pub id: Option<Cow<'a, str>>,
    /// The type; `None` means `message`.
    pub event: Option<Cow<'a, str>>,
    /// The data; empty in a priming event (MCP 2025-11-25, SEP-1699).
    pub data: Cow<'a, str>,
    /// The delay before the client connects again, in milliseconds.
    pub retry_ms: Option<u64>,
}

impl Event<'_> {
    /// An event of type `message` without an id.
    #[must_use]
    pub fn message(data: &str) -> Event<'_> {
        Event {
            data: Cow::Borrowed(data),
            ..Event::default()
        }
    }

    /// The event as it goes over the wire. Line breaks in `id` and `event`, which would end the
    /// field early, are left out; so is an id with NUL.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.data.len() + 64);
        if let Some(id) = &self.id
            && !id.contains('\0')
        {
            put_field(&mut out, b"id: ", id);
        }
        if let Some(event) = &self.event {
            put_field(&mut out, b"event: ", event);
        }
        if let Some(retry_ms) = self.retry_ms {
            put_field(&mut out, b"retry: ", &retry_ms.to_string());
        }
        put_data(&mut out, self.data.as_bytes());
        out.push(b'\n');
        Bytes::from(out)
    }
}

fn put_field(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')));
    out.push(b'\n');
}

/// Writes one `data` line for each line of the data, whatever the lines end with.
pub(super) fn put_data(out: &mut Vec<u8>, mut data: &[u8]) {
    loop {
        let end = memchr2(b'\r', b'\n', data);
        let (line, rest) = data
            .split_at_checked(end.unwrap_or(data.len()))
            .unwrap_or((data, &[]));
        out.extend_from_slice(if line.is_empty() { b"data:" } else { b"data: " });
        out.extend_from_slice(line);
        out.push(b'\n');
        if rest.is_empty() {
            return;
        }
        data = rest
            .strip_prefix(b"\r\n")
            .or_else(|| rest.get(1..))
            .unwrap_or_default();
    }
}

/// A comment, which clients ignore; it keeps proxies from closing an idle stream.
#[must_use]
pub fn comment(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 4);
    put_field(&mut out, b": ", text);
    out.push(b'\n');
    Bytes::from(out)
}

/// Reads events from chunks.
#[derive(Debug)]
pub struct EventParser {
    lines: Lines,
    block: Block,
    event_bytes_max: usize,
}

impl EventParser {
    /// A parser at the start of a stream, which refuses events longer than the limit.
    #[must_use]
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            lines: Lines::new(event_bytes_max),
            block: Block::default(),
            event_bytes_max,
        }
    }

    /// Takes the next chunk and hands every event that ends in it to `on_event`.
    ///
    /// # Errors
    /// [`EventError`]; the stream must then be given up.
    pub fn push(
        &mut self,
        chunk: &[u8],
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<(), EventError> {
        let (block, event_bytes_max) = (&mut self.block, self.event_bytes_max);
        self.lines.feed(chunk, |line| {
            if block.line(line, event_bytes_max)? == Line::End {
                if !block.is_empty() {
                    on_event(Event {
                        id: block.id.as_deref().map(Cow::Borrowed),
                        event: block.event.as_deref().map(Cow::Borrowed),
                        data: String::from_utf8_lossy(&block.data),
                        retry_ms: block.retry_ms,
                    });
                }
                block.clear();
            }
            Ok(())
        })
    }
}
