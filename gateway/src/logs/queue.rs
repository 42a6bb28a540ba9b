//! Lines on their way to stderr. One thread writes them and may wait for a reader as long as it likes; a line that finds
//! no room is dropped and counted.
//!
//! Invariant: the lock is never held while something is written.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mooring_metrics as metrics;

/// Most bytes that wait, besides those that are being written.
const WAITING_BYTES_MAX: usize = 128 * 1024;

/// Bytes to write, and what was lost after them.
#[derive(Debug, Default)]
pub(super) struct LineBatch {
    /// Whole lines.
    pub(super) lines: String,
    /// Number of lines that found no room.
    pub(super) dropped: u64,
}

/// The queue. Its writer takes everything at once.
#[derive(Debug, Default)]
pub(super) struct LineQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: LineBatch,
    is_writing: bool,
}

impl LineQueue {
    /// Adds a line if there is room.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.state();
        if state.waiting.lines.len().saturating_add(line.len()) > WAITING_BYTES_MAX {
            state.waiting.dropped = state.waiting.dropped.saturating_add(1);
            drop(state);
            metrics::log_line_lost(metrics::LogLoss::Unread);
            return;
        }
        state.waiting.lines.push_str(line);
        drop(state);
        self.changed.notify_all();
    }

    /// Adds a line, room or not: for the few of an exit, and for audit lines, each of which an operator's act has.
    pub(super) fn push_always(&self, line: &str) {
        self.state().waiting.lines.push_str(line);
        self.changed.notify_all();
    }

    /// Waits, at most so long, until there is something to write, and takes it. What was taken before counts as written.
    pub(super) fn take(&self, within: Duration) -> LineBatch {
        let mut state = self.state();
        state.is_writing = false;
        self.changed.notify_all();
        let (mut state, _) = (self.changed)
            .wait_timeout_while(state, within, |state| state.waiting.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        std::mem::take(&mut state.waiting)
    }

    /// Waits, at most so long, until everything is written.
    pub(super) fn wait_until_written(&self, within: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.state(), within, |state| {
                state.is_writing || !state.waiting.is_empty()
            });
        drop(waited);
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineBatch {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}
