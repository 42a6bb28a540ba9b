//! The last resort: both supervisors of a child were killed at once, and the gateway itself ends what they left.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::supervisor::{session_of, signal_all};

/// Most looks for processes that were born during the last one.
const ROUNDS_MAX: usize = 64;

/// A child by a handle that never means another process.
pub(super) struct MainProcess {
    pid: Pid,
    handle: OwnedFd,
}

impl MainProcess {
    /// The child of that number in the session that its guard leads. None where it has gone already: the number would
    /// be somebody else's.
    pub(super) fn open(pid: i32, guard: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let session = session_of(pid)?;
        (Some(session) == Pid::from_raw(guard)).then_some(Self { pid, handle })
    }

    /// Ends its descendants, its group and itself. Does nothing where it has ended: its number may be somebody else's.
    ///
    /// Descendants first: only below a living parent are they found. The child is stopped, so that it starts no more of
    /// them, but not before the first round: its keeper may still be dying, and the kernel sends SIGHUP to a group that
    /// is stopped when it loses that parent.
    pub(super) fn end(&self) {
        if self.has_ended() {
            return;
        }
        let mut ended = HashSet::new();
        for round in 0..ROUNDS_MAX {
            let known = ended.len();
            ended.extend(signal_all(self.pid, Signal::KILL));
            if round > 0 && ended.len() == known {
                break;
            }
            let _ = pidfd_send_signal(&self.handle, Signal::STOP);
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
    fn has_ended(&self) -> bool {
        let mut handles = [PollFd::new(&self.handle, PollFlags::IN)];
        let at_once = Timespec::default();
        retry_on_intr(|| poll(&mut handles, Some(&at_once))).is_ok_and(|ended| ended > 0)
    }
}
