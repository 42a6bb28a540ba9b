//! Version 2: one hierarchy. Groups are created in the subtree that was delegated to this process.
//!
//! A group that has controllers for its children must not contain processes, so this process may have to move into a
//! child group first. It moves no other process: if others are in its group, version 2 is not used.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use super::leaf::{self, Leaf};
use super::text::{self, CgroupVersion};
use super::{CPU_PERIOD_US, Cgroup, CgroupLimits, CgroupUsage};

/// Into which host processes step down, so that their parent group can have the groups of runs.
const HOSTS: &str = "mooring-hosts";
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// The delegated subtree.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    base: PathBuf,
}

impl Hierarchy {
    /// `None` if no group with the three controllers can be created.
    pub(super) fn find() -> Option<Self> {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = text::own_group(CgroupVersion::V2, &mountinfo, &membership)?;
        let hierarchy = Self {
            base: base_of(&own),
        };
        if !has_all(&hierarchy.base, "cgroup.controllers") {
            return None;
        }
        if !has_all(&hierarchy.base, "cgroup.subtree_control") {
            hierarchy.take_controllers(own == hierarchy.base).ok()?;
        }
        hierarchy.make().ok()?.limit(&CgroupLimits::PROBE).ok()?;
        Some(hierarchy)
    }

    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    fn take_controllers(&self, is_in_base: bool) -> io::Result<()> {
        let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        let first = text::write(&self.base, "cgroup.subtree_control", &wanted);
        match first {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && is_in_base => {}
            other => return other,
        }
        let hosts = self.base.join(HOSTS);
        match std::fs::create_dir(&hosts) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        text::write(&hosts, "cgroup.procs", std::process::id())?;
        let second = text::write(&self.base, "cgroup.subtree_control", &wanted);
        if second.is_err() {
            // Another process is in the group: this process moves back.
            text::write(&self.base, "cgroup.procs", std::process::id())?;
        }
        second
    }

    pub(super) fn make(&self) -> io::Result<CgroupV2> {
        let leaf = Leaf::make(&self.base, &leaf::next_name()?)?;
        // A kernel without swap has no such file.
        let _ = text::write(leaf.path(), "memory.swap.max", 0);
        text::write(leaf.path(), "memory.oom.group", 1)?;
        Ok(CgroupV2(leaf))
    }
}

/// The group in which runs' groups are created: the parent, if this process has already moved into a child group.
fn base_of(own: &Path) -> PathBuf {
    match own.parent() {
        Some(parent) if own.ends_with(HOSTS) => parent.to_owned(),
        _ => own.to_owned(),
    }
}

fn has_all(directory: &Path, file: &str) -> bool {
    let Ok(text) = text::read(directory, file) else {
        return false;
    };
    CONTROLLERS
        .iter()
        .all(|wanted| text.split_whitespace().any(|name| name == *wanted))
}

/// One run's group.
#[derive(Debug)]
pub(crate) struct CgroupV2(Leaf);

impl Cgroup for CgroupV2 {
    fn limit(&self, limits: &CgroupLimits) -> io::Result<()> {
        let quota = format!("{} {CPU_PERIOD_US}", limits.cpu_quota_us());
        text::write(self.0.path(), "memory.max", limits.memory_bytes)?;
        text::write(self.0.path(), "pids.max", limits.processes)?;
        text::write(self.0.path(), "cpu.max", quota)
    }

    fn attach(&self, pid: Pid) -> io::Result<()> {
        self.0.attach(pid)
    }

    fn kill(&self) -> io::Result<()> {
        match text::write(self.0.path(), "cgroup.kill", 1) {
            Ok(()) => Ok(()),
            // Kernels before 5.14.
            Err(_) => {
                text::write(self.0.path(), "pids.max", 0)?;
                self.0.kill_each()
            }
        }
    }

    fn usage(&self) -> io::Result<CgroupUsage> {
        let memory = text::read(self.0.path(), "memory.stat")?;
        let events = text::read(self.0.path(), "memory.events")?;
        let cpu = text::read(self.0.path(), "cpu.stat")?;
        Ok(CgroupUsage {
            memory_bytes: text::value(&memory, "anon") + text::value(&memory, "shmem"),
            cpu_time: Some(Duration::from_micros(text::value(&cpu, "usage_usec"))),
            was_out_of_memory: text::value(&events, "oom_kill") > 0,
        })
    }

    fn pids(&self) -> &Path {
        self.0.path()
    }

    fn memory_peak_bytes(&self) -> Option<u64> {
        text::read_number(self.0.path(), "memory.peak").ok()
    }
}
