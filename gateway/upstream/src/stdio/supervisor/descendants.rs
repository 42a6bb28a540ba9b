//! All processes that descend from one, and signals to exactly these.
//!
//! Invariant: a signal goes to a process whose parent, asked for after a handle to it was taken, is the one below which
//! it was found, or the root of the tree, to which it comes when that one has died. A number that was given to somebody
//! else meanwhile is never signalled.

use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Most processes that are looked at in one round. Who wants more of them gone asks again.
const ROUND_MAX: usize = 65_536;

/// Sends a signal to every descendant of `root` that can be found at this moment, and says which these were. Processes
/// that are born meanwhile may be missed: who wants them all gone asks again.
pub(in crate::stdio) fn signal_all(root: Pid, signal: Signal) -> Vec<Pid> {
    // The whole tree first: a parent that dies takes the way to its children with it.
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

/// Whether the kernel tells a process's children here.
///
/// # Errors
/// It does not: it was built without that, or `/proc` is not there.
pub(in crate::stdio) fn is_told_of_children() -> io::Result<()> {
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

/// The children of all threads of a process; none where it is gone.
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

/// The parent of a process. None where that stands outside what can be seen from here, as that of a container's first
/// process does.
fn parent_of(process: Pid) -> Option<Pid> {
    /// Behind the name: its state, then this.
    const PARENT: usize = 1;
    related(process, PARENT)
}

/// Who leads the session of a process. None where that process stands outside what can be seen from here. `getsid` says
/// 0 then, which rustix does not know.
pub(in crate::stdio) fn session_of(process: Pid) -> Option<Pid> {
    /// Behind the name: its state, parent, group, then this.
    const SESSION: usize = 3;
    related(process, SESSION)
}

/// A process that another one's `stat` names, in this word behind the name, which may hold anything but ends with the
/// last parenthesis.
fn related(process: Pid, word: usize) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let name_end = memchr::memrchr(b')', &stat)?;
    let rest = str::from_utf8(stat.get(name_end.saturating_add(1)..)?).ok()?;
    number(rest.split_ascii_whitespace().nth(word)?)
}

/// A process by its number. The kernel writes -1 for the group and session of one that is just being waited for.
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
    fn only_what_is_above_zero_is_a_process() {
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
