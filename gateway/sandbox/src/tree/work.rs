//! Working copies, for the tier that has no overlay.
//!
//! There the program changes a private copy of the session's trees, which then takes their place as a whole, through
//! the same staging and journal. Every entry of it is looked at like one of an overlay's layer.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{self, Mode};

use super::commit::looks;
use super::commit_error::CommitError;
use super::copy::{Copier, DIRECTORY_MODE};
use super::layer::Marks;
use super::open;
use super::plan::Plan;
use super::stage::Stager;
use super::usage::TreeUsage;
use crate::limits::Limits;
use crate::paths::Mount;
use crate::paths::TreeAccess;

/// Copies trees into an empty directory, each under its mount's name, and returns the copies. Together they may hold
/// what the limits allow of a disk; entries that are neither files nor directories are left out. Nothing may change the
/// trees meanwhile, and the caller removes the copies afterwards.
///
/// # Errors
///
/// [`CommitError::System`], and [`CommitError::OverLimit`] where the trees hold more than the limits allow.
pub fn copy_trees<const COUNT: usize>(
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

fn make(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, CommitError> {
    fs::mkdirat(at, name, Mode::RWXU).map_err(CommitError::system("make a working copy"))?;
    let made = open::directory(at, name).map_err(CommitError::system("open a working copy"))?;
    fs::fchmod(&made, DIRECTORY_MODE).map_err(CommitError::system("make a working copy"))?;
    Ok(made)
}
