//! Version 1: a hierarchy per controller, with a group in each of them below this process's own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::leaf::{self, Leaf};
use super::text::{self, CgroupVersion};
use super::{Cgroup, CgroupLimits, CgroupUsage};

/// This process's own groups.
#[derive(Debug)]
pub(crate) struct Hierarchies {
    memory: PathBuf,
    pids: PathBuf,
    cpu: PathBuf,
    /// Counts processor time. Often mounted together with `cpu`, and then the same directory.
    cpuacct: Option<PathBuf>,
}

impl Hierarchies {
    /// `None` if one of the three controllers with limits is missing, or no group can be created in it.
    pub(super) fn find() -> Option<Self> {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own =
            |controller| text::own_group(CgroupVersion::V1(controller), &mountinfo, &membership);
        let found = Self {
            memory: own("memory")?,
            pids: own("pids")?,
            cpu: own("cpu")?,
            cpuacct: own("cpuacct"),
        };
        found.make().ok()?.limit(&CgroupLimits::PROBE).ok()?;
        Some(found)
    }

    pub(super) fn bases(&self) -> Vec<&Path> {
        let three = [&self.memory, &self.pids, &self.cpu];
        let mut bases: Vec<&Path> = three.into_iter().map(PathBuf::as_path).collect();
        bases.extend(self.cpuacct_apart());
        bases
    }

    fn cpuacct_apart(&self) -> Option<&Path> {
        self.cpuacct.as_deref().filter(|path| *path != self.cpu)
    }

    pub(super) fn make(&self) -> io::Result<CgroupV1> {
        let name = leaf::next_name()?;
        let memory = Leaf::make(&self.memory, &name)?;
        text::write(memory.path(), "memory.swappiness", 0)?;
        let pids = Leaf::make(&self.pids, &name)?;
        let cpu = Leaf::make(&self.cpu, &name)?;
        let cpuacct = match self.cpuacct_apart() {
            Some(base) => Some(Leaf::make(base, &name)?),
            None => None,
        };
        Ok(CgroupV1 {
            memory,
            pids,
            cpu,
            cpuacct,
        })
    }
}

/// One run's groups.
#[derive(Debug)]
pub(crate) struct CgroupV1 {
    memory: Leaf,
    pids: Leaf,
    cpu: Leaf,
    cpuacct: Option<Leaf>,
}

impl Cgroup for CgroupV1 {
    fn limit(&self, limits: &CgroupLimits) -> io::Result<()> {
        let (memory, pids, cpu) = (self.memory.path(), self.pids.path(), self.cpu.path());
        text::write(memory, "memory.limit_in_bytes", limits.memory_bytes)?;
        // Without swap accounting there is no such file, and swappiness alone keeps the group from swapping.
        let _ = text::write(memory, "memory.memsw.limit_in_bytes", limits.memory_bytes);
        text::write(pids, "pids.max", limits.processes)?;
        text::write(cpu, "cpu.cfs_quota_us", limits.cpu_quota_us())
    }

    /// One for each hierarchy.
    fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let leaves = [&self.memory, &self.pids, &self.cpu];
        leaves
            .into_iter()
            .chain(&self.cpuacct)
            .map(Leaf::door)
            .collect()
    }

    /// Version 1 kills processes one at a time. They must not fork meanwhile, so the process limit is lowered first.
    fn kill(&self) -> io::Result<()> {
        text::write(self.pids.path(), "pids.max", 0)?;
        self.pids.kill_each()
    }

    fn usage(&self) -> io::Result<CgroupUsage> {
        let memory = text::read(self.memory.path(), "memory.stat")?;
        let control = text::read(self.memory.path(), "memory.oom_control")?;
        let counting = self.cpuacct.as_ref().unwrap_or(&self.cpu);
        let used_ns = text::read_number(counting.path(), "cpuacct.usage").ok();
        Ok(CgroupUsage {
            memory_bytes: text::value(&memory, "rss") + text::value(&memory, "shmem"),
            cpu_time: used_ns.map(Duration::from_nanos),
            was_out_of_memory: text::value(&control, "oom_kill") > 0,
        })
    }

    fn pids(&self) -> &Path {
        self.pids.path()
    }

    fn memory_peak_bytes(&self) -> Option<u64> {
        text::read_number(self.memory.path(), "memory.max_usage_in_bytes").ok()
    }
}
