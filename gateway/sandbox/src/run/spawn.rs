//! Starting the helper, and making sure of its end.
//!
//! Invariant: a helper that was started is dead and reaped when its value is dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::error::RunError;
use crate::protocol::{self, HELPER_NAME, ProtocolError, ToHelper};

/// For a process to be dead after it was killed.
pub(super) const KILL_WAIT: Duration = Duration::from_secs(5);

/// The re-executed binary that builds the isolation layers, and the host's end of the channel to it.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    process: Process,
    socket: OwnedFd,
}

/// The reading ends of the program's output.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Helper {
    /// Starts it with an empty environment and three descriptors: the channel and the two streams. Everything else
    /// that this process has open is closed on exec.
    pub(super) fn start(launcher: &Path) -> Result<(Self, Streams), RunError> {
        let (socket, channel) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(RunError::host("socketpair"))?;
        let (stdout, write_stdout) =
            pipe_with(PipeFlags::CLOEXEC).map_err(RunError::host("pipe"))?;
        let (stderr, write_stderr) =
            pipe_with(PipeFlags::CLOEXEC).map_err(RunError::host("pipe"))?;
        let child = Command::new(launcher)
            .arg0(HELPER_NAME)
            // What a terminal sends to the host's group, which finishes its runs first, does not end them.
            .process_group(0)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(channel))
            .stdout(Stdio::from(write_stdout))
            .stderr(Stdio::from(write_stderr))
            .spawn()
            .map_err(RunError::host("start the helper"))?;
        let process = match Process::open(Pid::from_child(&child)) {
            Ok(process) => process,
            Err(error) => {
                let mut child = child;
                // Without a handle it is ended by its number, which is its own until it is reaped here.
                let _ = child.kill();
                let _ = child.wait();
                return Err(RunError::Host {
                    step: "open the helper",
                    source: error,
                });
            }
        };
        Ok((
            Self {
                child,
                process,
                socket,
            },
            Streams { stdout, stderr },
        ))
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends it a message. No error where it is gone: its last message, if there is one, tells why, and is read next.
    pub(super) fn send(
        &self,
        message: &ToHelper,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), RunError> {
        match protocol::send(self.socket(), message, descriptors) {
            Err(ProtocolError::Send(error)) if is_gone(&error) => Ok(()),
            sent => sent.map_err(RunError::out_of_turn),
        }
    }

    /// Whether it said something, or is gone, within `wait`.
    pub(super) fn has_message_within(&self, wait: Duration) -> bool {
        is_readable_within(self.socket(), wait)
    }

    /// Lets a helper that waits for a run know that there is none, and waits for its end.
    pub(super) fn dismiss(&self, wait: Duration) {
        // It fails where the helper is gone.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.process.has_ended_within(wait);
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reaps it. It has ended, or is killed; a process that the kernel cannot kill is not waited for.
    pub(super) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.process.kill();
        if !self.process.has_ended_within(KILL_WAIT) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.child.wait()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Reaping twice is remembered by the standard library.
        let _ = self.reap();
    }
}

/// A process, by a handle that never means another one.
#[derive(Debug)]
pub(super) struct Process {
    pidfd: OwnedFd,
}

impl Process {
    fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self {
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
        })
    }

    pub(super) const fn from_pidfd(pidfd: OwnedFd) -> Self {
        Self { pidfd }
    }

    /// Readable when it has ended. Of the first process of a namespace: when every process of it has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(super) fn kill(&self) {
        // The only failure left is that it has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Whether it ended within `wait`.
    pub(super) fn has_ended_within(&self, wait: Duration) -> bool {
        is_readable_within(self.descriptor(), wait)
    }
}

/// Whether an error of sending says that the other side has closed the channel.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

fn is_readable_within(descriptor: BorrowedFd<'_>, wait: Duration) -> bool {
    let wait = Timespec::try_from(wait).ok();
    let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    loop {
        match poll(&mut descriptors, wait.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return matches!(other, Ok(1)),
        }
    }
}
