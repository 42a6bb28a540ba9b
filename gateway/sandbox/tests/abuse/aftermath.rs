//! What a run may have left: looked for in the whole machine, by the marks that every attack leaves.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::planted::Planted;

/// How processes of attacks call themselves, and how every file begins that they try to leave outside.
pub(crate) const MARKER: &str = "abuse-mark";

/// How long something may still be seen: parents have to collect processes that were killed, and on a machine with other
/// load that takes its time.
const COLLECT_WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Where anybody may write.
const PUBLIC: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// How the machine looked before a run.
#[derive(Debug)]
pub(crate) struct Before {
    processes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    control_groups: usize,
    descriptors: usize,
    files: BTreeSet<String>,
}

impl Before {
    pub(crate) fn look(arena: &Arena<'_>) -> Self {
        let waiting = arena.waiting_processes();
        until_none("groups without a helper", || groups_beyond(waiting.len()));
        let control_groups = control_groups().len();
        Self {
            processes: processes(&waiting),
            mounts: mounts(),
            control_groups,
            descriptors: descriptors(),
            files: files(arena.planted),
        }
    }

    /// Nothing of the run is left. Another helper waits in place of the one that it had.
    pub(crate) fn compare(&self, arena: &Arena<'_>) {
        let planted = arena.planted;
        none_is_left(&self.processes, &arena.waiting_processes());
        let new: Vec<_> = mounts().difference(&self.mounts).cloned().collect();
        assert!(new.is_empty(), "mounts are left: {new:?}");
        // The sandbox ends the helper of a run, and removes its group, after the run has returned.
        until_none("control groups", || groups_beyond(self.control_groups));
        // Fewer are none left: another thread of the scene may have had one open.
        until_none("descriptors", || {
            Vec::from_iter(Some(descriptors()).filter(|open| *open > self.descriptors))
        });
        assert_eq!(files(planted), self.files, "files outside were changed");
        // What another test does outside, to see that it works there, it removes.
        until_none("files", marked_files);
        let secret = fs::read_to_string(planted.other_session()).unwrap();
        assert_eq!(secret, planted.secret(), "another session was changed");
    }
}

/// No process that an attack started.
pub(crate) fn no_process_is_left() {
    none_is_left(&BTreeSet::new(), &[]);
}

fn none_is_left(before: &BTreeSet<String>, waiting: &[[i32; 2]]) {
    until_none("processes", || {
        processes(waiting).difference(before).cloned().collect()
    });
}

/// Waits until nothing of these is left.
fn until_none<T: Debug>(what: &str, mut left: impl FnMut() -> Vec<T>) {
    let deadline = Instant::now() + COLLECT_WAIT;
    loop {
        let left = left();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{what} are left: {left:?}");
        thread::sleep(POLL);
    }
}

/// Marked files where anybody may write.
fn marked_files() -> Vec<PathBuf> {
    let is_marked = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(MARKER))
    };
    PUBLIC
        .iter()
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(is_marked)
        .collect()
}

/// How many processes call themselves by the marker.
pub(crate) fn marked_processes() -> usize {
    processes(&[])
        .iter()
        .filter(|process| process.contains(MARKER))
        .count()
}

/// Marked processes and children of this one but waiting helpers, each with its number and name.
fn processes(waiting: &[[i32; 2]]) -> BTreeSet<String> {
    let own = std::process::id().to_string();
    let stat_of = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
    let pick = |stat: String| {
        let (name, fields) = stat.rsplit_once(')')?;
        let pid = name.split_whitespace().next()?.parse::<i32>().ok()?;
        let is_child = fields.split_whitespace().nth(1) == Some(&own)
            && !waiting.iter().flatten().any(|waits| *waits == pid);
        (name.contains(MARKER) || is_child).then(|| name.to_owned())
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(stat_of)
        .filter_map(pick)
        .collect()
}

fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    text.lines().map(str::to_owned).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The control groups that this process made, if they are more than `count`.
fn groups_beyond(count: usize) -> Vec<String> {
    let groups = Vec::from_iter(control_groups());
    if groups.len() > count {
        groups
    } else {
        Vec::new()
    }
}

/// Control groups that this process made.
fn control_groups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let own = format!("-{}-", std::process::id());
    let mut directories = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("mooring-") && name.contains(&own) {
                found.insert(name);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    found
}

/// Every file of the planted base, with its mode and length.
fn files(planted: &Planted) -> BTreeSet<String> {
    use std::os::unix::fs::MetadataExt;

    let mut found = BTreeSet::new();
    let mut directories = vec![planted.root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let metadata = fs::symlink_metadata(entry.path()).unwrap();
            if metadata.is_dir() {
                directories.push(entry.path());
            }
            found.insert(format!(
                "{} {:o} {} {} {}",
                entry.path().display(),
                metadata.mode(),
                metadata.uid(),
                metadata.len(),
                metadata.mtime_nsec()
            ));
        }
    }
    found
}
