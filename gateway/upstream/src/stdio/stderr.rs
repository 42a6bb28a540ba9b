//! Logs a child's stderr, and keeps the last lines.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::label::Label;
use super::lines::{Lines, LongLinePolicy};
use mooring_usage::TransferShare;

/// Longest line that is kept, in bytes; the rest of a longer one is dropped.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Number of lines kept.
const RECENT_MAX: usize = 20;
/// How many characters of them are logged when the connection ends.
const TAIL_CHARACTERS_MAX: usize = 1000;
/// Bytes per read.
const READ_BYTES: usize = 8 * 1024;

/// The last lines of a child's stderr. Cheap to clone; available after the child is gone.
#[derive(Clone, Debug, Default)]
pub struct RecentLines(Arc<Mutex<VecDeque<String>>>);

impl RecentLines {
    /// The last lines, oldest first: at most 20 of at most 4 KiB. For the log only: they are the server's text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }

    /// The end of the last lines, which usually has the reason of a child's end.
    pub(super) fn tail(&self) -> String {
        let text = self.lines().join("\n");
        let begin = text.char_indices().rev().take(TAIL_CHARACTERS_MAX).last();
        let begin = begin.map_or(0, |(index, _)| index);
        text.get(begin..).unwrap_or_default().to_owned()
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= RECENT_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads a child's stderr until it is closed.
pub(super) async fn log(mut source: pipe::Receiver, label: Label, recent: RecentLines) {
    let mut lines = Lines::new(LINE_BYTES_MAX, LongLinePolicy::Cut);
    let mut share = TransferShare::default();
    loop {
        // Lines that are too long are cut, so there is no error.
        while let Ok(Some(line)) = lines.next_line() {
            note(&line, &label, &recent);
        }
        poll_fn(|context| share.poll_more(context)).await;
        lines.buffer().reserve(READ_BYTES);
        match source.read_buf(lines.buffer()).await {
            Ok(read @ 1..) => share.count(read),
            Ok(0) | Err(_) => break,
        }
    }
    if let Some(rest) = lines.rest() {
        note(&rest, &label, &recent);
    }
}

fn note(line: &[u8], label: &Label, recent: &RecentLines) {
    let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    if line.is_empty() {
        return;
    }
    let Label { server, session } = label;
    tracing::info!(%server, %session, %line, "stderr of a server");
    recent.push(line);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let recent = RecentLines::default();
        for number in 0..30 {
            recent.push(number.to_string());
        }
        let lines = recent.lines();
        assert_eq!(lines.len(), RECENT_MAX);
        assert_eq!(lines.first().unwrap(), "10");
        assert_eq!(lines.last().unwrap(), "29");
        assert!(recent.tail().ends_with("28\n29"));
        recent.push("é".repeat(5000));
        assert_eq!(recent.tail(), "é".repeat(TAIL_CHARACTERS_MAX));
    }
}
