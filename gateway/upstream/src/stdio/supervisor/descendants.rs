//! Finds all descendants of a process and signals exactly these.
//!
//! Invariant: a process is signalled only if its parent, read after its pidfd was opened, is the parent below which it
//! was found, or the root of the tree, which adopts orphans. A reused process id is never signalled.

use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Most processes per round. Callers repeat the round to reach the others.
const ROUND_MAX: usize = 65_536;

/// Signals every descendant of `root` that exists now, and returns these. Processes forked meanwhile may be missed, so
/// callers repeat the call.
pub(in crate::stdio) fn signal_all(root: Pid, signal: Signal) -> Vec<Pid> {
    // Collect the whole tree first: children of a dead parent cannot be found.
    let mut found: Vec<Descendant> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop()
        && found.len() < ROUND_MAX
    {
        for process in children(parent) {
            found.push(Descendant { process, parent });
            parents.push(process);
        }
    }
    found
        .into_iter()
        .filter(|descendant| descendant.signal(root, signal).is_ok())
        .map(|descendant| descendant.process)
        .collect()
}

/// Checks that the kernel lists a process's children.
///
/// # Errors
/// It does not: the kernel was built without the option, or `/proc` is missing.
pub(in crate::stdio) fn check_children_listing() -> io::Result<()> {
    let own = getpid().as_raw_nonzero();
    fs::read(format!("/proc/{own}/task/{own}/children")).map(drop)
}

struct Descendant {
    process: Pid,
    parent: Pid,
}

impl Descendant {
    fn signal(&self, root: Pid, signal: Signal) -> io::Result<()> {
        let handle = pidfd_open(self.process, PidfdFlags::empty())?;
        match parent_of(self.process) {
            Some(parent) if parent == self.parent || parent == root => {
                Ok(pidfd_send_signal(handle, signal)?)
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// The children of all threads of a process; empty if it is gone.
fn children(process: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        let Ok(list) = fs::read_to_string(thread.path().join("children")) else {
            continue;
        };
        children.extend(list.split_ascii_whitespace().filter_map(number));
    }
    children
}

/// The parent of a process. `None` if the parent is outside the pid namespace, as for a container's first process.
fn parent_of(process: Pid) -> Option<Pid> {
    /// Its position after the name: the state comes first.
    const PARENT: usize = 1;
    related(process, PARENT)
}

/// The session leader of a process. `None` if the leader is outside the pid namespace: `getsid` then returns 0, which
/// rustix does not handle.
pub(in crate::stdio) fn session_of(process: Pid) -> Option<Pid> {
    /// Its position after the name: state, parent and group come first.
    const SESSION: usize = 3;
    related(process, SESSION)
}

/// A process id in a `stat` file, by its position after the name. The name may contain anything and ends with the last
/// parenthesis.
fn related(process: Pid, word: usize) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let name_end = memchr::memrchr(b')', &stat)?;
    let rest = str::from_utf8(stat.get(name_end.saturating_add(1)..)?).ok()?;
    number(rest.split_ascii_whitespace().nth(word)?)
}

/// A valid process id. The kernel writes -1 for group and session of a process that is being reaped.
fn number(text: &str) -> Option<Pid> {
    let number: u32 = text.parse().ok()?;
    Pid::from_raw(number.try_into().ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_positive_numbers_are_processes() {
        assert_eq!(number("1"), Pid::from_raw(1));
        for other in ["-1", "0", "4294967295", "", "x"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn grandchildren_are_found_and_strangers_are_not() {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "sleep 600 & echo started; wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 8];
        shell.stdout.take().unwrap().read_exact(&mut said).unwrap();
        let root = Pid::from_child(&shell);
        assert_eq!(parent_of(root), Some(getpid()));
        assert!(children(getpid()).contains(&root));
        let signalled = signal_all(root, Signal::KILL);
        assert_eq!(signalled.len(), 1, "the sleeper alone");
        // The shell waits for the sleeper, which is dead.
        shell.wait().unwrap();
        assert_eq!(signal_all(root, Signal::KILL), []);
    }
}
