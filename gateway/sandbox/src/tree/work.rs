//! Working copies, for the tier that has no overlay.
//!
//! There the program changes a private copy of the session's trees, which then takes their place as a whole, through
//! the same staging and journal. Every entry of it is looked at like one of an overlay's layer.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{self, Mode};

use super::commit::{CommitError, CommitReport, keep, looks};
use super::copy::{Copier, DIRECTORY_MODE};
use super::layer::Marks;
use super::open;
use super::plan::Plan;
use super::session::SessionDirectory;
use super::stage::Stager;
use super::usage::TreeUsage;
use crate::limits::Limits;
use crate::outcome::Changes;
use crate::paths::Mount;
use crate::paths::TreeAccess;

/// Copies a session's trees into an empty directory, as `scratch/` and `results/`, and returns both. The caller has the
/// session's lock, and removes the copy afterwards.
///
/// # Errors
///
/// [`CommitError::System`], and [`CommitError::OverLimit`] where the trees hold more than the limits allow.
pub fn copy_out(
    session: &SessionDirectory,
    destination: BorrowedFd<'_>,
    limits: &Limits,
) -> Result<Changes, CommitError> {
    let trees = [
        (Mount::Scratch, session.scratch()),
        (Mount::Results, session.results()),
    ];
    let [scratch, results] = copy_trees(trees, destination, limits)?;
    Ok(Changes { scratch, results })
}

/// Copies trees into an empty directory, each under its mount's name, and returns the copies. Together they may hold
/// what the limits allow of a disk; entries that are neither files nor directories are left out. Errors are those of
/// [`copy_out`].
pub(crate) fn copy_trees<const COUNT: usize>(
    trees: [(Mount, BorrowedFd<'_>); COUNT],
    destination: BorrowedFd<'_>,
    limits: &Limits,
) -> Result<[OwnedFd; COUNT], CommitError> {
    let ceiling = TreeUsage {
        bytes: limits.disk_bytes,
        inodes: limits.inodes,
    };
    // Files that were kept under higher limits are not refused here.
    let limits = Limits {
        file_bytes: u64::MAX,
        access: TreeAccess::WHOLE,
        ..limits.clone()
    };
    let mut stager = Stager {
        limits: &limits,
        marks: Marks::None,
        ceiling,
        staging: destination,
        plan: Plan::default(),
        copier: Copier::new(),
        checkpoint: &mut (),
        looks_left: looks(ceiling),
        // The files were kept by earlier commits, and the copy is charged to the run.
        cpu_until: Duration::MAX,
    };
    let mut copies = Vec::with_capacity(COUNT);
    for (mount, tree) in trees {
        let made = make(destination, mount.name())?;
        stager.copy_out(tree, mount, made.as_fd())?;
        copies.push(made);
    }
    <[OwnedFd; COUNT]>::try_from(copies)
        .map_err(|_| CommitError::system("make a working copy")(rustix::io::Errno::INVAL))
}

/// Commits a working copy that a run has changed: it replaces the whole content of the session's trees. Arguments and
/// errors are those of [`commit`](super::commit()).
///
/// # Errors
///
/// See [`CommitError`].
pub fn commit_copy(
    session: &SessionDirectory,
    work: &Changes,
    limits: &Limits,
    turn: Option<u64>,
) -> Result<CommitReport, CommitError> {
    let trees = [
        (Mount::Scratch, work.scratch.as_fd()),
        (Mount::Results, work.results.as_fd()),
    ];
    keep(session, trees, Marks::None, limits, turn, &mut ())
}

fn make(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, CommitError> {
    fs::mkdirat(at, name, Mode::RWXU).map_err(CommitError::system("make a working copy"))?;
    let made = open::directory(at, name).map_err(CommitError::system("open a working copy"))?;
    fs::fchmod(&made, DIRECTORY_MODE).map_err(CommitError::system("make a working copy"))?;
    Ok(made)
}
