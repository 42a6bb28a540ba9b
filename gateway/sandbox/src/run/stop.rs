//! The handle by which anybody stops a run.
//!
//! Invariant: once asked for, a stop stays asked for. A run that has not begun by then ends at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Stops one run. A clone stops the same run.
#[derive(Debug, Clone)]
pub struct StopHandle {
    /// Readable from the moment when a stop was asked for. Nobody reads it.
    asked: Arc<OwnedFd>,
}

impl StopHandle {
    /// A handle that nobody has used yet.
    ///
    /// # Errors
    /// Where the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let asked = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            asked: Arc::new(asked),
        })
    }

    /// Asks the run to stop: its whole tree of processes is killed. Asking again changes nothing.
    pub fn ask(&self) {
        // The only failure is a full counter, which is readable and therefore asks all the same.
        let _ = rustix::io::write(&*self.asked, &1_u64.to_ne_bytes());
    }

    /// Whether a stop was asked for.
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
