//! Reads a child's stdout line by line.
//!
//! Invariant: with [`Traffic::Messages`], only JSON is forwarded. Some servers print a banner, or log to stdout by
//! mistake; such lines are dropped, with a limited number of warnings. With [`Traffic::Output`], every line is
//! forwarded unchanged.

use std::future::poll_fn;

use bytes::Bytes;
use serde::de::IgnoredAny;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::child::Label;
use super::command::Traffic;
use super::lines::{Lines, LongLinePolicy};
use crate::read_share::ReadShare;

/// Bytes per read, which is also the buffer of an idle child.
const READ_BYTES: usize = 16 * 1024;
/// Most warnings per child about lines that are not messages.
const WARNINGS_MAX: u32 = 5;
/// How much of such a line is logged, in bytes.
const SHOWN_BYTES: usize = 200;

/// Why reading has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputEnd {
    /// The child closed its stdout, or is gone.
    Closed,
    /// A line exceeded the limit.
    TooLong,
}

/// Reads a child's stdout.
pub(super) struct Output {
    source: pipe::Receiver,
    lines: Lines,
    traffic: Traffic,
    share: ReadShare,
    /// A line that waits for room in the queue.
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
            share: ReadShare::default(),
            waiting: None,
            label,
            warnings: 0,
        }
    }

    /// Forwards every message or line. Cancel-safe: it can be dropped and called again without loss.
    pub(super) async fn forward(&mut self, incoming: &mpsc::Sender<Bytes>) -> OutputEnd {
        loop {
            self.forward_waiting(incoming).await;
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    self.accept(line);
                    continue;
                }
                Ok(None) => {}
                Err(_) => return OutputEnd::TooLong,
            }
            poll_fn(|context| self.share.poll_more(context)).await;
            let buffer = self.lines.buffer();
            buffer.reserve(READ_BYTES);
            match self.source.read_buf(buffer).await {
                Ok(read @ 1..) => self.share.count(read),
                // The last line may lack a newline. Half a message is not JSON and is dropped.
                Ok(0) | Err(_) => {
                    if let Some(rest) = self.lines.rest() {
                        self.accept(rest);
                        self.forward_waiting(incoming).await;
                    }
                    return OutputEnd::Closed;
                }
            }
        }
    }

    /// Reads and drops everything until stdout is closed, so that a full pipe does not delay the child's exit.
    pub(crate) async fn discard(&mut self) {
        let buffer = self.lines.buffer();
        loop {
            poll_fn(|context| self.share.poll_more(context)).await;
            buffer.clear();
            buffer.reserve(READ_BYTES);
            match self.source.read_buf(buffer).await {
                Ok(read @ 1..) => self.share.count(read),
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Waits for room before taking the line, so that a cancelled call loses nothing.
    async fn forward_waiting(&mut self, incoming: &mpsc::Sender<Bytes>) {
        if self.waiting.is_none() {
            return;
        }
        let room = incoming.reserve().await;
        // If the receiver is gone, the connection is over and the line is dropped.
        if let (Some(message), Ok(room)) = (self.waiting.take(), room) {
            room.send(message);
        }
    }

    fn accept(&mut self, line: Bytes) {
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
            "dropped a line of a server's stdout that is not a message"
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
