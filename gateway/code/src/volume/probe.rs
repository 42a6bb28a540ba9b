//! Proving that a file system does what sessions need, by doing it.
//!
//! Whether it can be the lower layer of an overlay is proved by the sandbox's own test.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mooring_sandbox::tree;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{self, DIRECTORY_MODE, LOCKS, RUNS, TOOLS, TRASH};
use super::lock::FileLock;
use super::problem::VolumeProblem;
use super::second_process::{Finding, SecondProcess};

/// The prefix of the names of a probe's directories.
pub(super) const PROBE_PREFIX: &str = ".probe-";
/// A file that is written, renamed onto another, and locked.
const FILE: &str = "file";
/// The one it is renamed onto.
const OTHER: &str = "other";
/// A link out of the directory.
const LINK: &str = "link";

/// Makes the base if it is missing, and opens it if no other user can replace its contents.
pub(super) fn open_base(path: &Path) -> Result<OwnedFd, VolumeProblem> {
    let base = match directory::open_base(path) {
        Err(Errno::NOENT) => {
            make_base(path)?;
            directory::open_base(path)
        }
        settled => settled,
    }
    .map_err(VolumeProblem::Open)?;
    let stat = fs::fstat(&base).map_err(VolumeProblem::Open)?;
    admit(
        stat.st_uid,
        stat.st_mode,
        rustix::process::geteuid().as_raw(),
    )?;
    Ok(base)
}

/// Whether the base is still what a gateway would open that starts now. Else the two would serve one session from two
/// directories.
pub(super) fn is_in_place(base: &OwnedFd, path: &Path) -> Result<(), VolumeProblem> {
    let own = fs::fstat(base).map_err(VolumeProblem::Open)?;
    match fs::statat(fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino) => Ok(()),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(VolumeProblem::Replaced),
        Err(errno) => Err(VolumeProblem::Open(errno)),
    }
}

/// Whether only the gateway's user and root can put other directories in the place of sessions. The group may: it
/// is how the containers of one fleet share a volume.
fn admit(owner: u32, mode: u32, expected: u32) -> Result<(), VolumeProblem> {
    if owner != expected && owner != 0 {
        return Err(VolumeProblem::Owner { owner, expected });
    }
    // Not even with the sticky bit: any user could then make the directory of a server before the gateway does.
    if Mode::from_raw_mode(mode).contains(Mode::WOTH) {
        let mode = mode & 0o7777;
        return Err(VolumeProblem::WritableByAll { mode });
    }
    Ok(())
}

fn make_base(path: &Path) -> Result<(), VolumeProblem> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE.as_raw_mode())
        .create(path);
    made.map_err(|error| VolumeProblem::Make(directory::errno(&error)))
}

/// Everything, once at start; and the directories that are always there.
pub(super) fn prove(
    base: &OwnedFd,
    base_dir: &Path,
    second: &SecondProcess,
) -> Result<(), VolumeProblem> {
    for name in [LOCKS, TOOLS, TRASH, RUNS] {
        directory::make_directory(base.as_fd(), name).map_err(making)?;
    }
    within(base, |probe, name| {
        prove_steps(probe)?;
        let path = base_dir.join(name).join(FILE);
        prove_between_processes(probe, &path, second)
    })
}

/// The checks that need no other process.
pub(super) fn prove_here(base: &OwnedFd) -> Result<(), VolumeProblem> {
    within(base, |probe, _| prove_steps(probe))
}

/// Works in a directory of its own, which is removed afterwards in every case.
fn within(
    base: &OwnedFd,
    work: impl FnOnce(BorrowedFd<'_>, &str) -> Result<(), VolumeProblem>,
) -> Result<(), VolumeProblem> {
    let name = directory::fresh_name(PROBE_PREFIX);
    fs::mkdirat(base, name.as_str(), DIRECTORY_MODE).map_err(making)?;
    let worked = directory::open_directory(base.as_fd(), &name)
        .map_err(VolumeProblem::Openat2)
        .and_then(|probe| work(probe.as_fd(), &name));
    let removed = tree::remove(base.as_fd(), name.as_ref())
        .map_err(|error| VolumeProblem::Remove(directory::errno(&error)));
    worked.and(removed)
}

fn making(errno: Errno) -> VolumeProblem {
    match errno {
        Errno::ROFS => VolumeProblem::ReadOnly,
        errno => VolumeProblem::MakeDirectory(errno),
    }
}

fn prove_steps(probe: BorrowedFd<'_>) -> Result<(), VolumeProblem> {
    for name in [FILE, OTHER] {
        directory::write_file(probe, name, OFlags::EXCL, name.as_bytes())
            .map_err(VolumeProblem::WriteFile)?;
    }
    fs::renameat(probe, OTHER, probe, FILE).map_err(VolumeProblem::Rename)?;
    prove_beneath(probe)?;
    let first = lock_file(probe)?;
    if try_lock(open_file(probe)?)?.is_some() {
        return Err(VolumeProblem::LockIsShared);
    }
    drop(first);
    lock_file(probe).map(drop)
}

/// Locks the file, which no other process knows yet.
fn lock_file(probe: BorrowedFd<'_>) -> Result<FileLock, VolumeProblem> {
    try_lock(open_file(probe)?)?.ok_or(VolumeProblem::Lock(Errno::WOULDBLOCK))
}

fn try_lock(file: OwnedFd) -> Result<Option<FileLock>, VolumeProblem> {
    FileLock::take(file, Duration::ZERO).map_err(VolumeProblem::Lock)
}

fn open_file(probe: BorrowedFd<'_>) -> Result<OwnedFd, VolumeProblem> {
    directory::open(probe, FILE, OFlags::RDWR, Mode::empty()).map_err(VolumeProblem::WriteFile)
}

/// A link is made, and not followed.
fn prove_beneath(probe: BorrowedFd<'_>) -> Result<(), VolumeProblem> {
    fs::symlinkat("..", probe, LINK).map_err(VolumeProblem::WriteFile)?;
    match directory::open_directory(probe, LINK) {
        Err(Errno::LOOP) => Ok(()),
        Err(errno) => Err(VolumeProblem::Openat2(errno)),
        Ok(_) => Err(VolumeProblem::Openat2Follows),
    }
}

fn prove_between_processes(
    probe: BorrowedFd<'_>,
    path: &Path,
    second: &SecondProcess,
) -> Result<(), VolumeProblem> {
    let file = lock_file(probe)?;
    let failed = |reason| VolumeProblem::SecondProcess { reason };
    if second.ask(path).map_err(failed)? != Finding::Locked {
        return Err(VolumeProblem::LockIsPrivate);
    }
    drop(file);
    if second.ask(path).map_err(failed)? != Finding::Free {
        return Err(VolumeProblem::Lock(Errno::WOULDBLOCK));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::{VolumeProblem, admit, making};

    #[test]
    fn a_base_that_others_can_change_is_refused() {
        let owner = |owner| Err(VolumeProblem::Owner { owner, expected: 7 });
        let open = |mode| Err(VolumeProblem::WritableByAll { mode });
        for (uid, mode, expected) in [
            (7, 0o40_700, Ok(())),
            (7, 0o42_775, Ok(())),
            (0, 0o42_775, Ok(())),
            (8, 0o40_700, owner(8)),
            (8, 0o40_777, owner(8)),
            (7, 0o40_777, open(0o777)),
            (0, 0o41_777, open(0o1777)),
        ] {
            assert_eq!(admit(uid, mode, 7), expected, "{uid} {mode:o}");
        }
    }

    #[test]
    fn a_read_only_base_is_said_to_be_one() {
        assert_eq!(making(Errno::ROFS), VolumeProblem::ReadOnly);
        assert_eq!(
            making(Errno::ACCESS),
            VolumeProblem::MakeDirectory(Errno::ACCESS)
        );
    }
}
