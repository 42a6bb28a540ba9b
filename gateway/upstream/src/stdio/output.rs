//! Reads a child's stdout line by line.
//!
//! Invariant: with [`Traffic::Messages`], only JSON is forwarded. Some servers print a banner, or log to stdout by
//! mistake; such lines are dropped with a warning. A response that is too long or no valid JSON is replaced by an error,
//! so that its call ends. With [`Traffic::Output`], every line is forwarded unchanged.

use std::future::poll_fn;

use bytes::Bytes;
use serde::de::IgnoredAny;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::command::Traffic;
use super::label::Label;
use super::lines::{Lines, LongLinePolicy};
use crate::answer_in_place::{error_in_place, error_in_place_of_long};
use mooring_protocol::CutMessage;
use mooring_usage::TransferShare;

/// Bytes per read, which is also the buffer of an idle child.
const READ_BYTES: usize = 16 * 1024;
/// Some programs begin their output with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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
    bytes_max: usize,
    traffic: Traffic,
    share: TransferShare,
    /// A line that waits for room in the queue.
    waiting: Option<Bytes>,
    label: Label,
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
            lines: Lines::new(
                bytes_max,
                match traffic {
                    Traffic::Messages => LongLinePolicy::Report,
                    Traffic::Output => LongLinePolicy::Refuse,
                },
            ),
            bytes_max,
            traffic,
            share: TransferShare::default(),
            waiting: None,
            label,
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
                Err(_) if self.traffic == Traffic::Output => return OutputEnd::TooLong,
                Err(line) => {
                    self.replace_too_long(&line);
                    continue;
                }
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
        let text = line.trim_ascii();
        let line = line.slice_ref(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text));
        if is_message(&line) {
            self.waiting = Some(line);
        } else if !line.is_empty() {
            self.warn(&line);
            self.waiting = error_in_place(&line, &line, "it is no valid JSON");
        }
    }

    fn replace_too_long(&mut self, line: &CutMessage) {
        tracing::warn!(
            server = %self.label.server,
            session = %self.label.session,
            bytes = line.bytes,
            bytes_max = self.bytes_max,
            "dropped a message of a server that is too long"
        );
        self.waiting = error_in_place_of_long(line, self.bytes_max);
    }

    fn warn(&self, line: &[u8]) {
        let Label { server, session } = &self.label;
        let line = String::from_utf8_lossy(line);
        tracing::warn!(%server, %session, %line, "dropped a line of a server's stdout that is not a message");
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

    #[test]
    fn a_response_that_cannot_be_read_is_replaced_by_an_error_with_its_id() {
        let line = br#"{"jsonrpc":"2.0","id":"c:1","result":{"value":NaN}}"#;
        let error = error_in_place(line, line, "it is no valid JSON");
        let error = error.map(|error| String::from_utf8_lossy(&error).into_owned());
        let error = error.unwrap_or_default();
        assert!(
            error.contains(r#""id":"c:1","error":{"code":-32011"#),
            "{error}"
        );
        for other in ["Server {}", "{\"method\":\"x\",\"id\":NaN}", "{"] {
            assert_eq!(error_in_place(other.as_bytes(), other.as_bytes(), ""), None);
        }
    }
}
