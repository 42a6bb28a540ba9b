//! What a gateway and the supervisor of a child say to each other, over one socket.
//!
//! The gateway sends one byte that carries three descriptors, and then its order as one line of JSON. What comes back
//! are reports, a line each. Either side ends by closing: for the supervisor that means "end the child", for the
//! gateway "nothing is left".

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

/// Standard input, output and error of the child.
const STREAMS: usize = 3;
/// The byte that carries them.
const CARRIER: u8 = b'S';
/// Longest order in bytes: what a kernel takes for arguments and environment, in JSON, with room to spare.
const ORDER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What is to be started. Its environment may hold secrets: it is never shown.
#[derive(Serialize, Deserialize)]
pub(super) struct StartRequest {
    /// See [`super::ChildSpec::program`].
    pub(super) program: String,
    /// See [`super::ChildSpec::arguments`].
    pub(super) arguments: Vec<String>,
    /// See [`super::ChildSpec::directory`].
    pub(super) directory: Option<PathBuf>,
    /// All of it.
    pub(super) environment: Vec<(String, String)>,
    /// Set before the program is started.
    pub(super) limits: ProcessLimits,
    /// Between the end of the gateway's interest and SIGTERM, in milliseconds.
    pub(super) stop_grace_ms: u64,
    /// Between SIGTERM and SIGKILL, in milliseconds.
    pub(super) terminate_grace_ms: u64,
}

/// What a supervisor tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The child runs, and is the leader of a process group of its own.
    Started {
        /// Its process.
        pid: i32,
    },
    /// There is no child.
    Failed(StartFailure),
    /// The child ended, with this wait status. What it started may still run, and is ended now.
    Exited {
        /// For `ExitStatus::from_raw`.
        status: i32,
    },
    /// Nothing is left of it.
    Gone,
}

/// Why a supervisor could not start a child: the step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StartFailure {
    /// The configured directory is not there, or is none.
    #[error("the directory {} to start it in is missing: {reason}", directory.display())]
    DirectoryMissing {
        /// As configured.
        directory: PathBuf,
        /// What the kernel says.
        reason: String,
    },
    /// No such program in the child's `PATH` or at its path, or the interpreter that it names is missing.
    #[error("the program {program:?} was not found")]
    NotFound {
        /// As configured.
        program: String,
    },
    /// It is there and may not be executed.
    #[error("the program {program:?} may not be executed")]
    NotExecutable {
        /// As configured.
        program: String,
    },
    /// Any other reason of the kernel's.
    #[error("the program {program:?} could not be started: {reason}")]
    Start {
        /// As configured.
        program: String,
        /// What the kernel says.
        reason: String,
    },
    /// A step before that.
    #[error("its supervisor could not be set up, {step}: {reason}")]
    Setup {
        /// Which step.
        step: String,
        /// What the kernel says.
        reason: String,
    },
}

impl StartFailure {
    /// For `map_err` on the step that is named.
    pub(super) fn setup<E: std::fmt::Display>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Setup {
            step: step.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Sends the child's standard input, output and error.
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

/// Takes them; they are closed on exec. None where the gateway is gone.
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

/// Reads the order that follows the streams. None where the gateway went away before it was complete.
pub(super) fn receive_order(socket: &UnixStream) -> io::Result<Option<StartRequest>> {
    let mut line = Vec::new();
    BufReader::new(socket.take(ORDER_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Tells the gateway. One that is gone needs to know nothing.
pub(super) fn tell(mut socket: &UnixStream, report: &Report) {
    if let Ok(line) = line_of(report) {
        let _ = socket.write_all(&line);
    }
}

/// A message as its line.
pub(super) fn line_of(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A copy of a descriptor, behind the standard ones and closed on exec: no program that is started gets it by chance.
pub(super) fn take_over(standard: impl AsFd) -> io::Result<OwnedFd> {
    /// The first descriptor behind the standard ones.
    const FIRST_OTHER: i32 = 3;
    Ok(rustix::io::fcntl_dupfd_cloexec(standard, FIRST_OTHER)?)
}
