//! Measures a run from `/proc`, many times a second, if no control group counts its usage.
//!
//! Memory is the sum over the tree's processes of their private and shared resident pages and of their page tables.
//! Pages that two processes share are counted for both, so a tree that forks is stopped earlier rather than later;
//! unmapped memory (a memfd that was only written to) is not counted, which is why the filter must refuse memfds, and
//! the queues of sockets and pipes are counted by [`super::kernel_objects`]. Processor time is that of the living and
//! of the dead they waited for. The number of processes is that at one moment: a run that reaches its limit only between
//! two measurements is not reported.
//!
//! Invariant: what is measured begins at the helper, to which every process of the run is a descendant: orphans become
//! children of process 1 or of the helper.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::cgroup::CgroupUsage;

/// Processes looked at in one measurement; more than any run may have.
const PROCESSES_MAX: usize = 8192;
/// In which `/proc` counts processor time, on every architecture that Rust has.
const TICKS_PER_SECOND: u64 = 100;

/// What a tree of processes uses at one moment.
#[derive(Debug, Default)]
pub(super) struct ProcessTreeUsage {
    pub(super) usage: CgroupUsage,
    /// Processes, and threads beyond the first of each, as the kernel counts them at its limit of processes.
    pub(super) threads: u64,
}

/// The usage of all descendants of `root`; the root itself is not counted.
pub(super) fn measure(root: Pid) -> io::Result<ProcessTreeUsage> {
    let mut tree = ProcessTreeUsage::default();
    let mut cpu_ticks = 0;
    for pid in descendants(root)? {
        // One that has ended meanwhile is counted by its parent, the next time.
        let Ok(stat) = ProcessStat::read(pid) else {
            continue;
        };
        tree.usage.memory_bytes += memory_of(pid);
        tree.threads += stat.threads;
        cpu_ticks += stat.cpu_ticks;
    }
    tree.usage.cpu_time = Some(Duration::from_millis(cpu_ticks * 1000 / TICKS_PER_SECOND));
    Ok(tree)
}

/// The processes that descend from `root`, without it.
pub(crate) fn descendants(root: Pid) -> io::Result<Vec<i32>> {
    let mut found = children(root.as_raw_pid())?;
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        if found.len() > PROCESSES_MAX {
            return Err(io::Error::other("more processes than any run may have"));
        }
        found.extend(children(pid).unwrap_or_default());
    }
    Ok(found)
}

/// Each thread has children of its own. Those of a thread that has ended meanwhile belong to another one.
fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match fs::read_to_string(thread?.path().join("children")) {
            Ok(text) => text,
            Err(error) if is_over(&error) => continue,
            Err(error) => return Err(error),
        };
        found.extend(
            text.split_whitespace()
                .filter_map(|child| child.parse::<i32>().ok()),
        );
    }
    Ok(found)
}

/// Whether a read of `/proc` failed because its thread ended: before the file was opened, or while it was read.
fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn memory_of(pid: i32) -> u64 {
    let found = find_in_threads(pid, |directory| {
        let status = fs::read_to_string(directory.join("status")).ok()?;
        let kilobytes = |key| {
            let line = status
                .lines()
                .find_map(|line: &str| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        // A thread that has ended has none of these.
        let resident = kilobytes("RssAnon:")? + kilobytes("RssShmem:").unwrap_or(0);
        Some((resident + kilobytes("VmPTE:").unwrap_or(0)) * 1024)
    });
    // A zombie has no memory.
    found.unwrap_or(0)
}

/// What `look` finds in the directory of a process or, where the process's first thread has ended and the others have
/// not, in that of one of its threads.
pub(super) fn find_in_threads<T>(pid: i32, look: impl Fn(&Path) -> Option<T>) -> Option<T> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if let Some(found) = look(&process) {
        return Some(found);
    }
    let threads = fs::read_dir(process.join("task")).ok()?;
    threads.flatten().find_map(|thread| look(&thread.path()))
}

/// One process in `/proc/PID/stat`.
struct ProcessStat {
    /// Own time in both modes, and that of the children that were waited for.
    cpu_ticks: u64,
    threads: u64,
}

impl ProcessStat {
    fn read(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may hold anything; the four times begin at the 12th field after it, and two fields
        // follow before the number of threads.
        let (_, fields) = stat.rsplit_once(')').ok_or(io::ErrorKind::InvalidData)?;
        let mut fields = fields.split_whitespace().skip(11).map(str::parse::<u64>);
        Ok(Self {
            cpu_ticks: fields.by_ref().take(4).flatten().sum(),
            threads: fields.nth(2).and_then(Result::ok).unwrap_or(0),
        })
    }
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
mod tests;
