//! Control groups: limits that the kernel enforces on all processes of a run together.
//!
//! The first of these in which this process may create groups is used: version 2, in the subtree that was delegated to
//! it; version 1, below its own groups; none, and then the watchdog measures instead. Every outcome names it as a
//! layer.
//!
//! Invariant: a group is removed when its run is over, and those of a host process that was killed are removed by the
//! next probe of another.

mod leaf;
mod text;
mod v1;
mod v2;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::limits::Limits;
use crate::tier::Layer;

/// Where groups are created.
#[derive(Debug)]
pub(crate) enum CgroupBackend {
    V2(v2::Hierarchy),
    V1(v1::Hierarchies),
    /// In neither version.
    Unavailable,
}

impl CgroupBackend {
    /// Creates a group to find out, and removes groups that killed processes left.
    pub(crate) fn probe() -> Self {
        if let Some(hierarchy) = v2::Hierarchy::find() {
            leaf::sweep(&[hierarchy.base()]);
            return Self::V2(hierarchy);
        }
        if let Some(hierarchies) = v1::Hierarchies::find() {
            leaf::sweep(&hierarchies.bases());
            return Self::V1(hierarchies);
        }
        Self::Unavailable
    }

    /// The layer that enforces the limits.
    pub(crate) const fn layer(&self) -> Layer {
        match self {
            Self::V2(_) => Layer::CgroupV2,
            Self::V1(_) => Layer::CgroupV1,
            Self::Unavailable => Layer::Watchdog,
        }
    }

    /// Moves a process to the group that it is already in. The first move after a while takes ten milliseconds and
    /// more, until every processor has taken notice; moves soon after do not. Doing it while the helper builds the
    /// isolation hides the wait.
    pub(crate) fn wake(&self, helper: Pid) {
        if let Self::V2(hierarchy) = self {
            // If this fails, the real move waits instead.
            let _ = text::write(hierarchy.base(), "cgroup.procs", helper.as_raw_nonzero());
        }
    }

    /// An empty group for one run, without limits yet. `None` if no group can be created.
    pub(crate) fn make(&self) -> io::Result<Option<Box<dyn Cgroup>>> {
        Ok(match self {
            Self::V2(hierarchy) => Some(Box::new(hierarchy.make()?)),
            Self::V1(hierarchies) => Some(Box::new(hierarchies.make()?)),
            Self::Unavailable => None,
        })
    }
}

/// The limits of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CgroupLimits {
    /// Memory of the run plus what it may write, which is in memory too.
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_percent: u32,
    /// Process 1, which waits for the others, included.
    pub(crate) processes: u32,
}

impl CgroupLimits {
    /// What process 1 and the kernel need for themselves.
    const OVERHEAD_BYTES: u64 = 8 * 1024 * 1024;

    /// The limits of a group that is created only to see whether it can be.
    const PROBE: Self = Self {
        memory_bytes: Self::OVERHEAD_BYTES,
        cpu_percent: 100,
        processes: 1,
    };

    pub(crate) const fn of(limits: &Limits, upper_bytes: u64) -> Self {
        Self {
            memory_bytes: limits.memory_bytes + upper_bytes + Self::OVERHEAD_BYTES,
            cpu_percent: limits.cpu_percent,
            processes: limits.processes + 1,
        }
    }

    /// Microseconds of processor time in each [`CPU_PERIOD_US`].
    const fn cpu_quota_us(&self) -> u64 {
        self.cpu_percent as u64 * CPU_PERIOD_US / 100
    }
}

/// Over which the share of a processor is averaged: the default of the kernel, which version 1 keeps.
const CPU_PERIOD_US: u64 = 100_000;

/// The usage of a group's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CgroupUsage {
    /// Private and shared memory at this moment, files in memory included, caches not.
    pub(crate) memory_bytes: u64,
    /// Of all processes that were ever in the group. `None` if no controller counts it.
    pub(crate) cpu_time: Option<Duration>,
    /// Whether the kernel killed one of them because memory ran out.
    pub(crate) was_out_of_memory: bool,
}

/// The group of one run. Dropping it kills its processes and removes it.
pub(crate) trait Cgroup: fmt::Debug + Send {
    /// Sets the limits of the run.
    fn limit(&self, limits: &CgroupLimits) -> io::Result<()>;

    /// Files with which a single-threaded process moves itself into the group, for
    /// [`crate::protocol::ToHelper::Begin`]. Empty if it has to be moved by [`Self::attach`].
    fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    /// Moves a process that has no door files into the group; its later children are in it too.
    fn attach(&self, _pid: Pid) -> io::Result<()> {
        Ok(())
    }

    /// Kills everything in it.
    fn kill(&self) -> io::Result<()>;

    fn usage(&self) -> io::Result<CgroupUsage>;

    /// The directory in which its processes are counted.
    fn pids(&self) -> &Path;

    /// Whether a process or thread was not made because there were as many as there may be.
    fn was_process_refused(&self) -> bool {
        // Kernels before 4.5 have no such file.
        text::read(self.pids(), "pids.events").is_ok_and(|events| text::value(&events, "max") > 0)
    }

    /// Peak memory. `None` if the kernel does not record it.
    fn memory_peak_bytes(&self) -> Option<u64>;
}
