//! The protocol between a gateway and a child's supervisors, over one socket.
//!
//! The gateway sends one byte with three descriptors, then a start request as one line of JSON. The supervisors send
//! reports, one per line. Closing the socket means "end the child" from the gateway, and "nothing is left" from the
//! supervisors.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::command::ProcessLimits;

/// The number of descriptors: stdin, stdout and stderr of the child.
const STREAMS: usize = 3;
/// The byte that accompanies them.
const CARRIER: u8 = b'S';
/// Longest start request, in bytes: more than the kernel's limit for arguments and environment, as JSON.
const ORDER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What to start. Its environment may contain secrets and is never shown.
#[derive(Serialize, Deserialize)]
pub(super) struct StartRequest {
    /// See [`super::ChildSpec::program`].
    pub(super) program: String,
    /// See [`super::ChildSpec::arguments`].
    pub(super) arguments: Vec<String>,
    /// See [`super::ChildSpec::directory`].
    pub(super) directory: Option<PathBuf>,
    /// The complete environment.
    pub(super) environment: Vec<(String, String)>,
    /// Set before the program starts.
    pub(super) limits: ProcessLimits,
    /// Time between the gateway's stop request and SIGTERM, in milliseconds.
    pub(super) stop_grace_ms: u64,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub(super) terminate_grace_ms: u64,
}

/// A report of a supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The child is running, and leads its own process group.
    Started {
        /// Its process id.
        pid: i32,
    },
    /// The child could not be started.
    Failed(StartFailure),
    /// The child exited with this wait status. Its descendants are now ended.
    Exited {
        /// For `ExitStatus::from_raw`.
        status: i32,
    },
    /// No process is left.
    Gone,
}

/// Why a supervisor could not start a child, by the step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StartFailure {
    /// The configured directory does not exist, or is not a directory.
    #[error("the directory {} to start it in is missing: {reason}", directory.display())]
    DirectoryMissing {
        /// As configured.
        directory: PathBuf,
        /// The kernel's reason.
        reason: String,
    },
    /// The program is not in the child's `PATH` or at its path, or the interpreter that it names is missing.
    #[error("the program {program:?} was not found")]
    NotFound {
        /// As configured.
        program: String,
    },
    /// The program exists but is not executable.
    #[error("the program {program:?} may not be executed")]
    NotExecutable {
        /// As configured.
        program: String,
    },
    /// Another kernel error.
    #[error("the program {program:?} could not be started: {reason}")]
    Start {
        /// As configured.
        program: String,
        /// The kernel's reason.
        reason: String,
    },
    /// A step of the supervisor's setup failed.
    #[error("its supervisor could not be set up, {step}: {reason}")]
    Setup {
        /// The step.
        step: String,
        /// The kernel's reason.
        reason: String,
    },
}

impl StartFailure {
    /// For `map_err` on the named step.
    pub(super) fn setup<E: std::fmt::Display>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Setup {
            step: step.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Sends the child's stdin, stdout and stderr.
pub(super) fn send_streams(
    socket: &UnixStream,
    streams: [BorrowedFd<'_>; STREAMS],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&streams)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let carrier = [CARRIER];
    let slices = [IoSlice::new(&carrier)];
    rustix::io::retry_on_intr(|| sendmsg(socket, &slices, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives them, closed on exec. `None` if the gateway is gone.
pub(super) fn receive_streams(socket: &UnixStream) -> io::Result<Option<[OwnedFd; STREAMS]>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0];
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut carrier)];
        recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut streams = Vec::with_capacity(STREAMS);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            streams.extend(rights);
        }
    }
    streams
        .try_into()
        .map(Some)
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Reads the start request after the streams. `None` if the gateway closed before it was complete.
pub(super) fn receive_order(socket: &UnixStream) -> io::Result<Option<StartRequest>> {
    let mut line = Vec::new();
    BufReader::new(socket.take(ORDER_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Sends a report. Errors are ignored: a gateway that is gone needs none.
pub(super) fn send_report(mut socket: &UnixStream, report: &Report) {
    if let Ok(line) = line_of(report) {
        let _ = socket.write_all(&line);
    }
}

/// A message as one line of JSON.
pub(super) fn line_of(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A copy of a descriptor above the standard ones, closed on exec, so that no started program inherits it.
pub(super) fn take_over(standard: impl AsFd) -> io::Result<OwnedFd> {
    /// The first descriptor after the standard ones.
    const FIRST_OTHER: i32 = 3;
    Ok(rustix::io::fcntl_dupfd_cloexec(standard, FIRST_OTHER)?)
}
