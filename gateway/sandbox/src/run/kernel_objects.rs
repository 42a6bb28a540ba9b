//! A run's kernel objects that are not in its memory: sockets, pipes and epoll watches, counted from `/proc`.
//!
//! The kernel limits pipe buffers and epoll watches per host user, and a run may share its user with the gateway: a run
//! at such a limit would stop every gateway of that user. Memory of sockets and pipes is in no process's resident set,
//! so the watchdog adds it to its measurement. A control group counts that memory itself.
//!
//! Invariant: a descriptor of the run is seen. All threads of a process share one table (the filter allows no other
//! kind of thread), no program can hide its table, and one that passes descriptors without receiving them, so that they
//! are in no table, is stopped.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::watchdog::{self, descendants};

/// Epoll watches of one run: as many as 64 processes, the default, can have with 256 descriptors and one epoll instance
/// each. `fs.epoll.max_user_watches` is about 230,000 for each GiB of a machine's memory.
const WATCHES_MAX: usize = 16 * 1024;
/// Pipes of one run: a quarter of what `fs.pipe-user-pages-soft` allows a user by default.
const PIPES_MAX: usize = 256;
/// Most sockets of one run. A control group counts their memory; this bounds the work of counting.
const SOCKETS_MAX: usize = 2048;

/// The size of a full pipe: the filter forbids to enlarge it.
const PIPE_BYTES: u64 = 64 * 1024;
/// By how much a socket's queue may exceed its limit: one packet.
const SOCKET_OVERHEAD_BYTES: u64 = 32 * 1024;
/// The limit of a socket's queue if the kernel does not report it.
const SOCKET_BYTES: u64 = 208 * 1024;

/// The interval of measurements.
const LOOK: Duration = Duration::from_millis(50);
/// The pause after a measurement, as a multiple of its duration: measuring takes at most a fifth of a processor.
const PAUSE_FACTOR: u32 = 4;

/// Repeated measurements of one run.
#[derive(Debug, Default)]
pub(super) struct ObjectsMeter {
    last: KernelObjects,
    /// None before the first measurement.
    next_look: Option<Instant>,
}

impl ObjectsMeter {
    /// Whether the descendants of `root` exceed their limits, or hide descriptors: sent but not received in two
    /// measurements in a row. False between measurements.
    pub(super) fn is_over_limit(&mut self, root: Pid, now: Instant) -> io::Result<bool> {
        if self.next_look.is_some_and(|next| now < next) {
            return Ok(false);
        }
        let found = KernelObjects::measure(root)?;
        let before = std::mem::replace(&mut self.last, found);
        self.next_look = Some(now + LOOK.max(now.elapsed() * PAUSE_FACTOR));
        let hides = before.has_passed_descriptors && found.has_passed_descriptors;
        Ok(found.is_over_limit() || hides)
    }

    /// [`KernelObjects::memory_bytes`] in the last measurement.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.last.memory_bytes()
    }
}

/// The kernel objects of one run at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KernelObjects {
    sockets: usize,
    pipes: usize,
    watches: usize,
    /// Whether a socket contains descriptors that were sent and not received yet.
    has_passed_descriptors: bool,
}

impl KernelObjects {
    /// Counts those of all descendants of `root`. Stops when a limit is exceeded.
    pub(crate) fn measure(root: Pid) -> io::Result<Self> {
        let mut counter = Counter::default();
        for pid in descendants(root)? {
            counter.look_at(pid);
            if counter.found.is_over_limit() {
                break;
            }
        }
        Ok(counter.found)
    }

    /// Whether the run has more than it may.
    const fn is_over_limit(&self) -> bool {
        self.watches > WATCHES_MAX || self.pipes > PIPES_MAX || self.sockets > SOCKETS_MAX
    }

    /// Most memory that the queues of these sockets and pipes can take.
    fn memory_bytes(&self) -> u64 {
        let sockets = (self.sockets as u64).saturating_mul(socket_bytes());
        sockets.saturating_add((self.pipes as u64).saturating_mul(PIPE_BYTES))
    }

    /// Whether no descriptor could be read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sockets == 0 && self.pipes == 0
    }
}

/// Most memory of one socket of a pair.
fn socket_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let setting = fs::read_to_string("/proc/sys/net/core/wmem_default").ok();
        let limit = setting.and_then(|text| text.trim().parse().ok());
        limit
            .unwrap_or(SOCKET_BYTES)
            .saturating_add(SOCKET_OVERHEAD_BYTES)
    })
}

/// Counts what processes share once.
#[derive(Default)]
struct Counter {
    found: KernelObjects,
    /// Inodes of sockets and pipes.
    seen: HashSet<PathBuf>,
}

impl Counter {
    /// Counts those of one process. A process that has ended, or that is about to become the program but still belongs
    /// to the helper, cannot be read.
    fn look_at(&mut self, pid: i32) {
        let Some((directory, names)) = descriptors_of(pid) else {
            return;
        };
        for name in names {
            if self.found.is_over_limit() {
                return;
            }
            if let Ok(target) = fs::read_link(directory.join("fd").join(&name)) {
                self.add(target, &directory.join("fdinfo").join(&name));
            }
        }
    }

    fn add(&mut self, target: PathBuf, details: &Path) {
        let Some(kind) = target.to_str() else { return };
        if kind == "anon_inode:[eventpoll]" {
            // These have no inodes: shared ones count for each process.
            self.found.watches += count_lines(details, "tfd:", WATCHES_MAX + 1);
        } else if kind.starts_with("pipe:[") {
            self.found.pipes += usize::from(self.seen.insert(target));
        } else if kind.starts_with("socket:[") && self.seen.insert(target) {
            self.found.sockets += 1;
            self.found.has_passed_descriptors |= holds_descriptors(details);
        }
    }
}

/// The directory of a living thread of `pid` with its `fd` and `fdinfo`, and the names in it.
fn descriptors_of(pid: i32) -> Option<(PathBuf, Vec<std::ffi::OsString>)> {
    watchdog::find_in_threads(pid, |directory| {
        let names: Vec<_> = fs::read_dir(directory.join("fd"))
            .ok()?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        // The table of a thread that has ended is empty.
        (!names.is_empty()).then(|| (directory.to_owned(), names))
    })
}

/// How many lines begin with `start`, at most `most`.
fn count_lines(path: &Path, start: &str, most: usize) -> usize {
    let Ok(file) = File::open(path) else { return 0 };
    BufReader::new(file)
        .split(b'\n')
        .map_while(Result::ok)
        .filter(|line| line.starts_with(start.as_bytes()))
        .take(most)
        .count()
}

/// Linux 5.6 and later report the number of descriptors in a socket's queue.
fn holds_descriptors(details: &Path) -> bool {
    let text = fs::read_to_string(details).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("scm_fds:"))
        .any(|count| count.trim() != "0")
}

#[cfg(test)]
#[path = "kernel_objects_tests.rs"]
mod tests;
