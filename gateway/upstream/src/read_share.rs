//! How much of one stream a task reads before it lets others run.
//!
//! Invariant: a server that sends faster than it can be read delays other users' calls on the same thread by what one
//! share takes. The runtime counts reads, each of which may be large, and a stream may amount to nothing: comments, lines
//! that are no messages.

use std::task::{Context, Poll};

/// Bytes of a share.
const SHARE_BYTES: usize = 64 * 1024;

/// Counts what was read of one stream.
#[derive(Debug, Default)]
pub(crate) struct ReadShare {
    read: usize,
}

impl ReadShare {
    /// Counts bytes that were read.
    pub(crate) const fn count(&mut self, read: usize) {
        self.read = self.read.saturating_add(read);
    }

    /// Starts a new share, because its task has waited for more.
    pub(crate) const fn reset(&mut self) {
        self.read = 0;
    }

    /// Whether more may be read now. If not, the task runs again after the others.
    pub(crate) fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.read < SHARE_BYTES {
            return Poll::Ready(());
        }
        self.reset();
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
