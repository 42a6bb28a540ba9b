//! How much of one stream a task reads or writes before it lets others run.
//!
//! Invariant: who sends or takes more than a task can read or write at once delays other users' calls on the same thread by
//! what one share takes. The runtime counts reads and writes, each of which may be large, and a stream may amount to
//! nothing: comments, lines that are no messages.

use std::task::{Context, Poll};

/// Counts what was read of one stream, or written to it.
#[derive(Debug, Default)]
pub struct TransferShare {
    moved: usize,
}

impl TransferShare {
    /// Bytes of a share: a few hundredths of a millisecond.
    pub const BYTES: usize = 64 * 1024;

    /// Counts bytes that were read or written.
    pub const fn count(&mut self, moved: usize) {
        self.moved = self.moved.saturating_add(moved);
    }

    /// Starts a new share, because its task has waited for more.
    pub const fn reset(&mut self) {
        self.moved = 0;
    }

    /// Whether more may be read or written now. If not, the task runs again after the others.
    pub fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.moved < Self::BYTES {
            return Poll::Ready(());
        }
        self.reset();
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
