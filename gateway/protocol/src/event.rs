//! Server-sent events: parsing them from chunks, and writing them.
//!
//! The rules are those of the WHATWG HTML standard, 9.2.6 "Interpreting an event stream": lines end with CR, LF or
//! both; a leading byte order mark is dropped; `data` lines are joined with a line feed; an `id` with NUL and a `retry`
//! with non-digits are ignored; an incomplete block at the end of the stream is not an event. Invariant: memory is
//! bounded by `event_bytes_max` and one chunk. A longer event is skipped and reported, and the next one is read.

use std::sync::Arc;

use bytes::Bytes;
use memchr::{memchr, memchr2};
use thiserror::Error;

use super::cut_message::CutMessage;
use super::held::held_bytes;
use mooring_usage::{HeldMemory, SHORT_BYTES_MAX};

/// An event that was skipped, because it or one of its lines exceeds the limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an event of the stream is longer than {event_bytes_max} bytes")]
pub struct EventTooLong {
    /// What is known of its data.
    pub message: CutMessage,
    /// The limit, in bytes.
    pub event_bytes_max: usize,
}

/// A line, without its line end, or a part of one that exceeds the limit.
enum LinePart<'a> {
    Whole(&'a [u8]),
    /// The beginning of a long one, as far as it has arrived.
    LongBeginning(&'a [u8]),
    /// What follows it.
    LongRest(&'a [u8]),
}

/// Splits a byte stream into lines.
#[derive(Debug)]
struct Lines {
    /// The start of an incomplete line.
    partial: Vec<u8>,
    /// Whether the last line ended with CR, so that a following LF belongs to it.
    after_return: bool,
    /// Whether no line has ended yet.
    first: bool,
    /// Whether the rest of a long line is skipped.
    is_skipping: bool,
    line_bytes_max: usize,
}

impl Lines {
    fn new(line_bytes_max: usize) -> Self {
        Self {
            partial: Vec::new(),
            after_return: false,
            first: true,
            is_skipping: false,
            line_bytes_max,
        }
    }

    /// Passes every line that ends in this chunk to `on_line`, and what has arrived of a long one.
    fn feed(&mut self, mut chunk: &[u8], mut on_line: impl FnMut(LinePart<'_>)) {
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
            let ended = rest.split_first();
            self.take_line(line, ended.is_some(), &mut on_line);
            let Some((terminator, rest)) = ended else {
                return;
            };
            self.after_return = *terminator == b'\r';
            chunk = rest;
        }
    }

    /// Takes what has arrived of a line, and whether it ends there.
    fn take_line(&mut self, line: &[u8], is_whole: bool, on_line: &mut impl FnMut(LinePart<'_>)) {
        if self.is_skipping {
            self.is_skipping = !is_whole;
            return on_line(LinePart::LongRest(line));
        }
        let is_long = self.partial.len() + line.len() > self.line_bytes_max;
        if !is_whole || is_long || !self.partial.is_empty() {
            self.partial.extend_from_slice(line);
        }
        if !is_whole && !is_long {
            return;
        }
        self.is_skipping = !is_whole;
        let is_first = std::mem::take(&mut self.first);
        let line = match self.partial.is_empty() {
            true => line,
            false => &self.partial,
        };
        let marked = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| is_first);
        let line = marked.unwrap_or(line);
        on_line(match is_long {
            true => LinePart::LongBeginning(line),
            false => LinePart::Whole(line),
        });
        // A long line is rare, and its room would be kept for as long as the stream is open.
        match self.partial.capacity() <= SHORT_BYTES_MAX {
            true => self.partial.clear(),
            false => self.partial = Vec::new(),
        }
    }
}

/// The fields of the current event.
#[derive(Debug, Default)]
struct Block {
    id: Option<Box<str>>,
    event: Option<Box<str>>,
    retry_ms: Option<u64>,
    data: Option<Vec<u8>>,
    /// What is known of the data, if the event is too long.
    skipped: Option<CutMessage>,
    /// Whether the long line that is skipped is one of data.
    is_long_data: bool,
}

/// The name and the value of a field.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b':', line).and_then(|at| line.split_at_checked(at)) {
        Some((name, value)) => {
            let value = value.strip_prefix(b":").unwrap_or(value);
            (name, value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, &[]),
    }
}

impl Block {
    /// Handles a line, without its line end. Comments and unknown fields are ignored, as the standard says.
    fn line(&mut self, line: &[u8], event_bytes_max: usize) {
        let (name, value) = field(line);
        match name {
            b"data" => {
                let length = self.data.as_ref().map_or(0, Vec::len);
                if self.skipped.is_some() || length + value.len() + 1 > event_bytes_max {
                    return self.skip(value);
                }
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    None => self.data = Some(value.to_vec()),
                }
            }
            b"id" if memchr(0, value).is_none() => {
                self.id = Some(String::from_utf8_lossy(value).into());
            }
            b"event" => self.event = Some(String::from_utf8_lossy(value).into()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = std::str::from_utf8(value)
                    .ok()
                    .and_then(|value| value.parse().ok());
            }
            _ => {}
        }
    }

    /// Skips the beginning of a line that exceeds the limit, and with it the event.
    fn begin_long_line(&mut self, line: &[u8]) {
        let (name, value) = field(line);
        self.is_long_data = name == b"data";
        self.skip_rest(value);
    }

    /// Skips a further part of it.
    fn skip_rest(&mut self, part: &[u8]) {
        match self.is_long_data {
            true => self.skip(part),
            false => self.skip(&[]),
        }
    }

    /// Drops the data, of which only the beginning and the end are kept from here on.
    fn skip(&mut self, part: &[u8]) {
        let skipped = self.skipped.get_or_insert_default();
        if let Some(data) = self.data.take() {
            skipped.push(&data);
        }
        skipped.push(part);
    }

    /// Ends the block; `None` if it had no known field.
    fn end(&mut self, event_bytes_max: usize) -> Option<Result<Event, EventTooLong>> {
        let Self {
            id,
            event,
            retry_ms,
            data,
            skipped,
            is_long_data: _,
        } = std::mem::take(self);
        if let Some(message) = skipped {
            return Some(Err(EventTooLong {
                message,
                event_bytes_max,
            }));
        }
        let event = Event {
            id,
            event,
            retry_ms,
            data: data.map(Bytes::from),
            held: None,
        };
        (event != Event::default()).then_some(Ok(event))
    }
}

/// An event. Browsers dispatch only events with data; the gateway also relays those that only set the id or the delay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The event's own id. An event without one keeps the previous event's id.
    pub id: Option<Box<str>>,
    /// The type; `None` means `message`.
    pub event: Option<Box<str>>,
    /// The client's reconnection delay, in milliseconds.
    pub retry_ms: Option<u64>,
    /// The data, usually one JSON-RPC message; empty in a priming event (MCP 2025-11-25, SEP-1699).
    pub data: Option<Bytes>,
    /// The memory that a long event takes, until its encoded form is dropped too; none if it is short.
    pub held: Option<Arc<HeldMemory>>,
}

impl Event {
    /// An event of type `message` without an id.
    #[must_use]
    pub fn message(data: impl Into<Bytes>) -> Self {
        Self {
            data: Some(data.into()),
            ..Self::default()
        }
    }

    /// The message of the event; `None` if it has no data or another type.
    #[must_use]
    pub fn as_message(&self) -> Option<&Bytes> {
        let is_message = matches!(self.event.as_deref(), None | Some("" | "message"));
        self.data
            .as_ref()
            .filter(|data| is_message && !data.is_empty())
    }

    /// Its length in bytes, as counted by limits.
    #[must_use]
    pub fn length(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        text(&self.id) + text(&self.event) + self.data.as_ref().map_or(0, Bytes::len)
    }

    /// The event's wire format. Line breaks in `id` and `event` are removed because they would end the field, and an id
    /// with NUL is omitted.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.length() + 64);
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
        if let Some(data) = &self.data {
            put_data(&mut out, data);
        }
        out.push(b'\n');
        held_bytes(Bytes::from(out), self.held.as_ref())
    }
}

/// The message with this text.
impl From<Bytes> for Event {
    fn from(data: Bytes) -> Self {
        Self::message(data)
    }
}

/// The message with this text.
impl From<Box<str>> for Event {
    fn from(data: Box<str>) -> Self {
        Self::message(String::from(data))
    }
}

fn put_field(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')));
    out.push(b'\n');
}

/// Writes one `data` line per line of the data, for any line ends.
fn put_data(out: &mut Vec<u8>, mut data: &[u8]) {
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

/// Parses events from chunks.
#[derive(Debug)]
pub struct EventParser {
    lines: Lines,
    block: Block,
    event_bytes_max: usize,
}

impl EventParser {
    /// A parser at the start of a stream; events are limited to `event_bytes_max` bytes.
    #[must_use]
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            lines: Lines::new(event_bytes_max),
            block: Block::default(),
            event_bytes_max,
        }
    }

    /// The bytes of the event that has not ended yet.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.lines.partial.len() + self.block.data.as_ref().map_or(0, Vec::len)
    }

    /// Parses the next chunk and passes every event that ends in it to `on_event`.
    pub fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Result<Event, EventTooLong>)) {
        let (block, event_bytes_max) = (&mut self.block, self.event_bytes_max);
        self.lines.feed(chunk, |line| match line {
            LinePart::Whole([]) => {
                if let Some(event) = block.end(event_bytes_max) {
                    on_event(event);
                }
            }
            LinePart::Whole(line) => block.line(line, event_bytes_max),
            LinePart::LongBeginning(line) => block.begin_long_line(line),
            LinePart::LongRest(part) => block.skip_rest(part),
        });
    }
}
