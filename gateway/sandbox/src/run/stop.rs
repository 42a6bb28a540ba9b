//! The handle that stops a run from any thread.
//!
//! Invariant: a requested stop stays requested. A run that begins later ends at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Stops one run. A clone stops the same run.
#[derive(Debug, Clone)]
pub struct StopHandle {
    /// Readable once a stop was requested. It is never read.
    asked: Arc<OwnedFd>,
}

impl StopHandle {
    /// A handle without a requested stop.
    ///
    /// # Errors
    /// Where the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let asked = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            asked: Arc::new(asked),
        })
    }

    /// Stops the run: its whole process tree is killed. Further calls have no effect.
    pub fn ask(&self) {
        // The only possible failure is a full counter, which is readable and therefore stops the run too.
        let _ = rustix::io::write(&*self.asked, &1_u64.to_ne_bytes());
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let mut descriptors = [PollFd::new(&*self.asked, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut descriptors, Some(&now)), Ok(1))
    }
}

impl AsFd for StopHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }
}
