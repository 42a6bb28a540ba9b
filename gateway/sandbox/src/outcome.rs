//! The result of a run.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tier::{Layer, Tier};

/// The result of a run. Dropping it discards the run's files; to store them, pass `changes` to the commit.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ended: RunEnd,
    /// Its standard output.
    pub stdout: Output,
    /// Its standard error.
    pub stderr: Output,
    /// Its resource usage, measured from the processes themselves.
    pub usage: Usage,
    /// The changes to its trees.
    pub changes: Changes,
    /// The isolation tier it ran in.
    pub tier: Tier,
    /// Whether its helper had been started in advance.
    pub start: HelperStart,
    /// The isolation layers that were in place.
    pub layers: Vec<Layer>,
    /// The limits that it reached without being stopped, as far as they can be determined afterwards.
    pub limits_reached: Vec<RunLimit>,
    /// The system calls that it was refused.
    pub refused_calls: Vec<RefusedCall>,
    /// The private directory of the degraded tier. It is removed with the outcome.
    pub(crate) _private: Option<Box<dyn Any + Send + Sync>>,
}

/// When the helper of a run was started. The isolation is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperStart {
    /// Before the run: it waited.
    Warm,
    /// For the run.
    Cold,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The program exited with this code.
    Exited(i32),
    /// The program was ended by a signal that the sandbox did not send, such as its own abort.
    Signalled(i32),
    /// It was stopped.
    Stopped(StopReason),
}

/// Why a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It exceeded its wall time.
    WallTime,
    /// It exceeded its processor time.
    CpuTime,
    /// It exceeded its memory limit, or the limit on sockets, pipes and epoll watches in the kernel.
    Memory,
    /// It exceeded its disk limit. Only in the degraded tier, where files are watched; elsewhere its writes fail and it
    /// keeps running.
    Disk,
    /// The caller stopped it.
    Asked,
}

/// A limit that the kernel enforces by refusing the call, while the run continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLimit {
    /// No further process or thread was made. Without a control group: it had as many as it may have when it was
    /// measured.
    Processes,
    /// The layer of its files is full.
    DiskBytes,
    /// The layer of its files has as many of them as it may.
    Files,
}

/// A system call that the filter refused, of those that only an attempt to leave the sandbox makes, or one to use what
/// it does not have: sockets, mounts, namespaces, other processes and users, the kernel itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    /// Its name, such as `socket`.
    pub name: String,
    /// How often. Of a run at most 256 calls are counted.
    pub count: u32,
}

/// The output on one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The beginning of it, up to the limit.
    pub bytes: Vec<u8>,
    /// How much was written in all.
    pub written_bytes: u64,
}

impl Output {
    /// Whether some of it was dropped.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.written_bytes > self.bytes.len() as u64
    }
}

/// The resource usage of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// From the start of the program to the end of the last process.
    pub wall_time: Duration,
    /// From the call to the start of the program: the cost of the isolation.
    pub start_time: Duration,
    /// Processor time of the whole tree, and of the host's thread that reads its output and watches it.
    pub cpu_time: Duration,
    /// Peak memory: of the whole tree if a control group measures it, otherwise of its largest process.
    pub memory_peak_bytes: u64,
}

/// The files that a run wrote, unchecked. All of it is untrusted.
#[derive(Debug)]
pub struct Changes {
    /// The upper layer of `/scratch`, or a whole copy of it.
    pub scratch: OwnedFd,
    /// The same for `/results`.
    pub results: OwnedFd,
    /// Whether they are copies, as in the degraded tier, which take the place of the trees, and not layers over them.
    pub is_copy: bool,
}
