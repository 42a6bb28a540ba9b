//! The protocol between the host and the re-executed helper.
//!
//! They speak over descriptor 0 of the helper, one end of a `SOCK_SEQPACKET` pair: one message is one packet, JSON,
//! with its descriptors in the same packet. Everything long (the program, the system call filter) is passed as a
//! descriptor, so that every packet stays below [`PACKET_BYTES_MAX`].
//!
//! ```text
//! host   Begin{tier} + [doors..]
//! helper Waiting{pid} + [pidfd]
//!                                     process 1 waits; where it has no doors to step through by itself, the host puts
//!                                     it into its control group. Nothing of a run is known yet: a helper can be begun
//!                                     in advance, and wait here as long as it takes
//! host   Spec + [tools, skills, scratch, results, program, filter, bridge?]
//! helper Prepared + [listener?]
//! host   Go
//! helper Started + [upper scratch, upper results]
//!                                     the program runs
//! helper Finished{..} + [upper scratch, upper results]
//! ```
//!
//! A host with a run at hand sends `Begin` and `Spec` at once. In the degraded tier it has to: process 1 is forked after
//! the spec.
//!
//! `Failed` can come in place of every message of the helper, and is its last one. A host that wants the run to end
//! sends `SIGKILL` to the pidfd; `Finished` still follows. The thread of the host that started the helper must live as
//! long as the run does: its death is the run's.
//!
//! Invariant: nothing of the program ever holds an end of this channel.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::outcome::RefusedCall;
use crate::tier::Tier;
use crate::tree::TreeAccess;

/// The helper's `argv[0]`, by which a binary recognizes that it has to be the helper.
pub const HELPER_NAME: &str = "mooring-sandbox";

/// Longest packet of either side.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;

/// Most descriptors that one packet carries.
pub const DESCRIPTORS_MAX: usize = 7;

/// Most doors of [`ToHelper::Begin`]: one for each hierarchy of control groups, version 1.
pub const DOORS_MAX: usize = 4;

/// Messages of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHelper {
    /// The first message. Carries files of control groups, at most [`DOORS_MAX`]: process 1 first writes `0` to each,
    /// which moves it into the group. None if there is no group, or if the host moves process 1 into it.
    Begin {
        /// The isolation tier. If one of its layers is unavailable, the reply is [`FromHelper::Failed`].
        tier: Tier,
    },
    /// The run, with the descriptors of [`SpecDescriptors`].
    Spec(Box<Spec>),
    /// Process 1 is in its control group, which has the limits of the run, and may start the program.
    Go,
}

/// Messages of the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHelper {
    /// Process 1 exists, and waits for the spec. Carries its pidfd.
    Waiting {
        /// As the host counts processes.
        pid: i32,
    },
    /// Process 1 is confined, and waits for [`ToHelper::Go`]. Carries, with [`WireNetwork::Proxy`], the socket that
    /// listens inside.
    Prepared,
    /// The program has been started. Carries the same descriptors as [`FromHelper::Finished`]: the usage of the layers
    /// shows how much of a control group's memory is files.
    Started,
    /// No process of the run is left. Carries the two upper directories in the strict tier, nothing in the degraded
    /// one.
    Finished(FinishReport),
    /// A step failed, and nothing of the program has run.
    Failed(StepFailure),
}

/// The run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// What runs the program.
    pub runtime: WireRuntime,
    /// Files and directories of the host, by absolute path, that the program sees read-only at the same path, besides
    /// the runtime's binaries and the system's shared libraries: the standard library of python.
    pub seen: Vec<PathBuf>,
    /// The limits of the run.
    pub limits: WireLimits,
    /// The visible and the writable parts of the trees. Less than everything only in the strict tier.
    pub access: TreeAccess,
    /// Whether the packet has [`ProgramDescriptors::bridge`].
    pub has_bridge: bool,
    /// The network access of the program.
    pub network: WireNetwork,
}

/// The network access of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireNetwork {
    /// Nothing.
    None,
    /// [`crate::PROXY_PORT`] of a private loopback, in the strict tier.
    Proxy {
        /// The certificates of public authorities, one of [`Spec::seen`], where the host has any.
        certificates: Option<PathBuf>,
    },
}

/// What runs the program. Paths are absolute, of the host, without a link in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireRuntime {
    /// The program's bytes are python source.
    Python {
        /// The interpreter.
        binary: PathBuf,
    },
    /// The program's bytes are TypeScript source.
    Deno {
        /// The one binary.
        binary: PathBuf,
        /// The data size (`VmData`) of an idle deno, to which its memory limit is added. It depends on the version:
        /// measured by the probe, [`WireRuntime::DENO_DATA_BYTES`] before that.
        data_bytes: u64,
    },
    /// The program's bytes are the JSON of a `Vec<Stage>`.
    Tools {
        /// Where each tool that may be named is found; only these are seen.
        binaries: BTreeMap<String, PathBuf>,
    },
}

impl WireRuntime {
    /// `VmData` of an idle deno 2.9, with room for its compiler's threads.
    pub const DENO_DATA_BYTES: u64 = 640 * 1024 * 1024;

    /// The additional data size of each further isolate of deno (a `Worker`), nearly all of it reserved and never
    /// touched. If a control group counts touched memory, room for some of them costs nothing; otherwise a program with
    /// workers is refused memory.
    pub const DENO_WORKER_DATA_BYTES: u64 = 544 * 1024 * 1024;
}

/// The limits of one run, as numbers for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireLimits {
    /// Processor time per process, in whole seconds, rounded up. At least 1.
    pub cpu_seconds: u64,
    /// Memory of the program; per process if only the kernel's limits per process apply.
    pub memory_bytes: u64,
    /// One file.
    pub file_bytes: u64,
    /// How much the run may add to `/scratch` and `/results` together: the limit less what earlier runs left.
    pub upper_bytes: u64,
    /// The same for files and directories.
    pub upper_inodes: u64,
    /// Size of `/tmp`, which no run finds again.
    pub temporary_bytes: u64,
    /// Processes and threads at the same time.
    pub processes: u32,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishReport {
    /// Wait status of the main process (of the last stage of a pipeline), for `ExitStatus::from_raw`. None if process 1
    /// was killed before the program ended.
    pub status: Option<i32>,
    /// Processor time of all processes of the run, in microseconds.
    pub cpu_us: u64,
    /// Most memory of the biggest process of the run, the helper's own process 1 included.
    pub memory_peak_bytes: u64,
    /// The system calls that it was refused.
    pub refused_calls: Vec<RefusedCall>,
}

/// Which step failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// Name of the step: `namespaces`, `root`, `overlay`, `landlock`, ...
    pub step: String,
    /// The kernel's error number, 0 if there is none.
    pub errno: i32,
    /// The error in words, for the log and for `sandbox_unavailable`.
    pub text: String,
}

/// The descriptors that come with [`ToHelper::Spec`], in this order.
#[derive(Debug)]
pub struct SpecDescriptors<D> {
    /// Mounted read-only at `/tools`.
    pub tools: D,
    /// Mounted read-only at `/skills`.
    pub skills: D,
    /// Strict: the lower layer of `/scratch`. Degraded: a private copy, which the program writes to and starts in;
    /// there all four stand in one private directory under their own names, beside an empty `code` and an empty `tmp`.
    pub scratch: D,
    /// The same for `/results`.
    pub results: D,
    /// What process 1 gets.
    pub program: ProgramDescriptors<D>,
}

/// The descriptors of a program, in this order.
#[derive(Debug)]
pub struct ProgramDescriptors<D> {
    /// The program's bytes, see [`WireRuntime`]. A regular file (a memfd) that is read from its beginning.
    pub source: D,
    /// The system call filter of the tier, [`crate::helper::filter`]. A regular file likewise: one sealed memfd can
    /// serve all runs, because it is read without moving its offset.
    pub filter: D,
    /// The program's descriptor 3, if [`Spec::has_bridge`] is set.
    pub bridge: Option<D>,
}

impl<D> SpecDescriptors<D> {
    /// In the order of the packet.
    pub fn into_vec(self) -> Vec<D> {
        let mut all = vec![self.tools, self.skills, self.scratch, self.results];
        all.extend(self.program.into_vec());
        all
    }

    /// Parses the descriptors of a spec's packet; none if some are missing.
    pub fn from_received(received: Vec<D>, has_bridge: bool) -> Option<Self> {
        let mut received = received.into_iter();
        let mut next = || received.next();
        Some(Self {
            tools: next()?,
            skills: next()?,
            scratch: next()?,
            results: next()?,
            program: ProgramDescriptors::from_received(received.collect(), has_bridge)?,
        })
    }
}

impl<D> ProgramDescriptors<D> {
    /// In the order of the packet.
    pub fn into_vec(self) -> Vec<D> {
        let mut all = vec![self.source, self.filter];
        all.extend(self.bridge);
        all
    }

    /// Parses the descriptors of a program; none if some are missing.
    pub fn from_received(received: Vec<D>, has_bridge: bool) -> Option<Self> {
        let mut received = received.into_iter();
        Some(Self {
            source: received.next()?,
            filter: received.next()?,
            bridge: if has_bridge {
                Some(received.next()?)
            } else {
                None
            },
        })
    }
}

/// Why a message could not be sent or understood.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The kernel refused.
    #[error("send: {0}")]
    Send(#[source] io::Error),
    /// The kernel refused.
    #[error("receive: {0}")]
    Receive(#[source] io::Error),
    /// Longer than [`PACKET_BYTES_MAX`], or with more than [`DESCRIPTORS_MAX`] descriptors.
    #[error("message too large")]
    TooLarge,
    /// Not a message of this protocol.
    #[error("message not understood: {0}")]
    Json(#[from] serde_json::Error),
}

/// Sends one message. Waits while the other side's queue is full.
///
/// # Errors
///
/// [`ProtocolError`]; a peer that is gone is a [`ProtocolError::Send`] with `EPIPE`, never a signal.
pub fn send<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ProtocolError> {
    let packet = serde_json::to_vec(message)?;
    if packet.len() > PACKET_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(ProtocolError::TooLarge);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ProtocolError::TooLarge);
    }
    let slices = [IoSlice::new(&packet)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &slices, &mut ancillary, SendFlags::NOSIGNAL)
    })
    .map_err(|error| ProtocolError::Send(error.into()))?;
    Ok(())
}

/// Waits for one message; its descriptors are close-on-exec. None if the other side is gone.
///
/// # Errors
///
/// [`ProtocolError`].
pub fn receive<M: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> Result<Option<(M, Vec<OwnedFd>)>, ProtocolError> {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut packet)];
        match rustix::net::recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            // The other side closed the channel and left a packet unread. The kernel reports that once, before the
            // packets that it had sent, which can still be read.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(error) => return Err(ProtocolError::Receive(error.into())),
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(ProtocolError::TooLarge);
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let text = packet.get(..received.bytes).unwrap_or_default();
    Ok(Some((serde_json::from_slice(text)?, descriptors)))
}
