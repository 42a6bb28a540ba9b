//! What a child prints, line by line.
//!
//! Invariant: where messages are expected, only JSON goes on. Some servers print a banner, or log to their standard
//! output by mistake; such a line is dropped, and said so a few times. Where output is, every line goes on as it is.

use bytes::Bytes;
use serde::de::IgnoredAny;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::child::Label;
use super::command::Traffic;
use super::lines::{Lines, LongLinePolicy};

/// Bytes of one read; so much is held for each child that says nothing.
const READ_BYTES: usize = 16 * 1024;
/// Most lines of one child that are reported as no messages.
const WARNINGS_MAX: u32 = 5;
/// How much of such a line is shown, in bytes.
const SHOWN_BYTES: usize = 200;

/// Why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputEnd {
    /// The child closed it, or is gone.
    Closed,
    /// A line was longer than the most.
    TooLong,
}

/// Reads the child's output.
pub(super) struct Output {
    source: pipe::Receiver,
    lines: Lines,
    traffic: Traffic,
    /// A line for which there was no room yet.
    waiting: Option<Bytes>,
    label: Label,
    warnings: u32,
}

impl Output {
    pub(super) fn new(
        source: pipe::Receiver,
        bytes_max: usize,
        traffic: Traffic,
        label: Label,
    ) -> Self {
        Self {
            source,
            lines: Lines::new(bytes_max, LongLinePolicy::Refuse),
            traffic,
            waiting: None,
            label,
            warnings: 0,
        }
    }

    /// Passes every message or line on. It may be given up any time and begun again: nothing is lost by that.
    pub(super) async fn pass_on(&mut self, incoming: &mpsc::Sender<Bytes>) -> OutputEnd {
        loop {
            self.pass_on_waiting(incoming).await;
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    self.take(line);
                    continue;
                }
                Ok(None) => {}
                Err(_) => return OutputEnd::TooLong,
            }
            let buffer = self.lines.buffer();
            buffer.reserve(READ_BYTES);
            match self.source.read_buf(buffer).await {
                Ok(1..) => {}
                // A last line may lack its newline; half a message is no JSON.
                Ok(0) | Err(_) => {
                    if let Some(rest) = self.lines.rest() {
                        self.take(rest);
                        self.pass_on_waiting(incoming).await;
                    }
                    return OutputEnd::Closed;
                }
            }
        }
    }

    /// Reads on and drops everything, until the child closes it: what it writes at its end must not hold it up.
    pub(crate) async fn discard(&mut self) {
        let buffer = self.lines.buffer();
        loop {
            buffer.clear();
            buffer.reserve(READ_BYTES);
            if !matches!(self.source.read_buf(buffer).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Waits for room first: the message stays here until there is some.
    async fn pass_on_waiting(&mut self, incoming: &mpsc::Sender<Bytes>) {
        if self.waiting.is_none() {
            return;
        }
        let room = incoming.reserve().await;
        // Where nobody takes messages any more, the connection is over, and what is still said is dropped.
        if let (Some(message), Ok(room)) = (self.waiting.take(), room) {
            room.send(message);
        }
    }

    fn take(&mut self, line: Bytes) {
        if self.traffic == Traffic::Output {
            self.waiting = Some(line);
            return;
        }
        let line = line.slice_ref(line.trim_ascii());
        if is_message(&line) {
            self.waiting = Some(line);
        } else if !line.is_empty() {
            self.warn(&line);
        }
    }

    fn warn(&mut self, line: &[u8]) {
        if self.warnings >= WARNINGS_MAX {
            return;
        }
        self.warnings = self.warnings.saturating_add(1);
        let shown = String::from_utf8_lossy(line.get(..SHOWN_BYTES).unwrap_or(line));
        tracing::warn!(
            server = %self.label.server,
            session = %self.label.session,
            line = ?shown,
            is_last_warning = self.warnings == WARNINGS_MAX,
            "a server wrote a line that is no message to its standard output; it was dropped"
        );
    }
}

/// Whether a line is a JSON object or array.
fn is_message(line: &[u8]) -> bool {
    matches!(line.first(), Some(b'{' | b'[')) && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_and_arrays_are_messages() {
        for message in ["{}", "[]", r#"{"jsonrpc":"2.0","id":1}"#] {
            assert!(is_message(message.as_bytes()), "{message}");
        }
        for other in [
            "",
            "1",
            "\"text\"",
            "null",
            "{",
            "[info] started",
            "Server {}",
            "{}{}",
        ] {
            assert!(!is_message(other.as_bytes()), "{other}");
        }
    }
}
