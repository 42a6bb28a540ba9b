//! The directory of one run's group: its name, its removal, and the sweep of groups whose owners were killed.
//!
//! Invariant: the name identifies the owner. A process removes its own groups, and those of processes that no longer
//! exist; never one whose owner it cannot look up.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::text;

/// How long the kernel may take to notice that a group is empty.
const REMOVE_WAIT: Duration = Duration::from_secs(5);
/// Interval of checks whether it is empty.
const REMOVE_POLL: Duration = Duration::from_millis(1);

/// A process, distinguished from every other that ever had its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    /// The process namespace in which the number counts.
    namespace: u64,
    pid: u32,
    /// In ticks since the machine's start.
    started: u64,
}

impl Owner {
    /// This process.
    fn own() -> io::Result<Self> {
        static OWN: OnceLock<Owner> = OnceLock::new();
        if let Some(own) = OWN.get() {
            return Ok(*own);
        }
        let pid = std::process::id();
        let started = start_of(pid).ok_or(io::ErrorKind::NotFound)?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        Ok(*OWN.get_or_init(|| Self {
            namespace,
            pid,
            started,
        }))
    }

    fn is_gone(self) -> bool {
        start_of(self.pid) != Some(self.started)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut fields = name.strip_prefix("mooring-")?.split('-');
        let owner = Self {
            namespace: fields.next()?.parse().ok()?,
            pid: fields.next()?.parse().ok()?,
            started: fields.next()?.parse().ok()?,
        };
        let _number: u64 = fields.next()?.parse().ok()?;
        fields.next().is_none().then_some(owner)
    }
}

/// When a process started. `None` if there is no process with this pid.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the start time is the 20th field after it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// A name that no other run has or had.
pub(super) fn next_name() -> io::Result<String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Owner {
        namespace,
        pid,
        started,
    } = Owner::own()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(format!("mooring-{namespace}-{pid}-{started}-{number}"))
}

/// One directory of one run's group. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(super) struct Leaf(PathBuf);

impl Leaf {
    pub(super) fn make(base: &Path, name: &str) -> io::Result<Self> {
        let path = base.join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn attach(&self, pid: Pid) -> io::Result<()> {
        text::write(&self.0, "cgroup.procs", pid.as_raw_nonzero())
    }

    /// The file that a thread writes `0` to in order to move itself in.
    pub(super) fn door(&self) -> io::Result<OwnedFd> {
        text::open(&self.0, "tasks").map(OwnedFd::from)
    }

    /// Sends `SIGKILL` to each process in it, once. What forks faster than this is caught by the next round, or by the
    /// end of its process namespace.
    pub(super) fn kill_each(&self) -> io::Result<()> {
        kill_each(&self.0)
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        remove(&self.0, REMOVE_WAIT);
    }
}

fn kill_each(directory: &Path) -> io::Result<()> {
    let processes = text::read(directory, "cgroup.procs")?;
    for pid in processes.lines().filter_map(|line| line.parse().ok()) {
        if let Some(pid) = Pid::from_raw(pid) {
            // It may have ended since it was listed.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}

/// Kills the processes left in a group and removes it. A group that cannot be removed in time is left to the next
/// sweep.
fn remove(directory: &Path, wait: Duration) {
    let deadline = Instant::now() + wait;
    loop {
        match fs::remove_dir(directory) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {}
            _ => return,
        }
        let _ = kill_each(directory);
        thread::sleep(REMOVE_POLL);
    }
}

/// Removes the groups in `bases` whose owners are gone.
pub(super) fn sweep(bases: &[&Path]) {
    let Ok(own) = Owner::own() else { return };
    for base in bases {
        let Ok(entries) = fs::read_dir(base) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(Owner::parse);
            if owner.is_some_and(|owner| owner.namespace == own.namespace && owner.is_gone()) {
                remove(&entry.path(), REMOVE_WAIT);
            }
        }
    }
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
