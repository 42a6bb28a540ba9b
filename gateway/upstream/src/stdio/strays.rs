//! Last resort if both supervisors of a child were killed: the gateway itself ends the remaining processes.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::supervisor::{session_of, signal_all};

/// Most rounds of searching for processes that were forked during the previous round.
const ROUNDS_MAX: usize = 64;

/// A child by pidfd, which cannot refer to another process.
pub(super) struct MainProcess {
    pid: Pid,
    handle: OwnedFd,
}

impl MainProcess {
    /// Opens the child with this process id in its guard's session. `None` if it has exited: the id may have been
    /// reused.
    pub(super) fn open(pid: i32, guard: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let session = session_of(pid)?;
        (Some(session) == Pid::from_raw(guard)).then_some(Self { pid, handle })
    }

    /// Kills its descendants, its group and itself. Does nothing if it has exited, because its id may have been reused.
    ///
    /// Descendants come first, because they can only be found below a living parent. The child is stopped so that it
    /// cannot fork, but not before the first round: its keeper may still be exiting, and the kernel sends SIGHUP to a
    /// stopped group that loses its parent.
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
