//! Logs a child's stderr, limited in length and rate, and keeps the last lines.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::child::Label;
use super::lines::{Lines, LongLinePolicy};
use crate::read_share::ReadShare;

/// Longest logged line, in bytes; the rest of a longer one is dropped.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Most logged lines per child and second.
const LINES_PER_SECOND: u32 = 100;
/// Number of lines kept.
const RECENT_MAX: usize = 20;
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
    let mut meter = Meter::new(Instant::now());
    let mut share = ReadShare::default();
    loop {
        // Lines that are too long are cut, so there is no error.
        while let Ok(Some(line)) = lines.next_line() {
            note(&line, &label, &recent, &mut meter);
        }
        poll_fn(|context| share.poll_more(context)).await;
        lines.buffer().reserve(READ_BYTES);
        match source.read_buf(lines.buffer()).await {
            Ok(read @ 1..) => share.count(read),
            Ok(0) | Err(_) => break,
        }
    }
    if let Some(rest) = lines.rest() {
        note(&rest, &label, &recent, &mut meter);
    }
    report_dropped(meter.take_dropped(), &label);
}

fn note(line: &[u8], label: &Label, recent: &RecentLines, meter: &mut Meter) {
    let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    if line.is_empty() {
        return;
    }
    let (is_logged, dropped) = meter.count(Instant::now());
    report_dropped(dropped, label);
    if is_logged {
        let Label { server, session } = label;
        tracing::info!(%server, %session, line = ?line, "stderr of a server");
    }
    recent.push(line);
}

fn report_dropped(dropped: u64, label: &Label) {
    if dropped > 0 {
        let Label { server, session } = label;
        tracing::warn!(%server, %session, dropped, "dropped lines of a server's stderr");
    }
}

/// Counts lines per second.
struct Meter {
    second_began: Instant,
    logged: u32,
    dropped: u64,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self {
            second_began: now,
            logged: 0,
            dropped: 0,
        }
    }

    /// Whether a line at this time is logged, and the number of unreported dropped lines before it.
    fn count(&mut self, now: Instant) -> (bool, u64) {
        let mut dropped = 0;
        if now.saturating_duration_since(self.second_began) >= Duration::from_secs(1) {
            self.second_began = now;
            self.logged = 0;
            dropped = self.take_dropped();
        }
        let is_logged = self.logged < LINES_PER_SECOND;
        if is_logged {
            self.logged = self.logged.saturating_add(1);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
        (is_logged, dropped)
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_flood_is_logged_in_part_and_counted_whole() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let logged = (0..150).filter(|_| meter.count(start).0).count();
        assert_eq!(logged, 100);
        assert_eq!(meter.count(start + Duration::from_secs(1)), (true, 50));
        assert_eq!(meter.count(start + Duration::from_secs(1)), (true, 0));
        assert_eq!(meter.take_dropped(), 0);
    }

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
    }
}
