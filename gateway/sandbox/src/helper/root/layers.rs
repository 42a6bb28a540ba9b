//! Step: writable layers over the session's trees.
//!
//! Both layers are on one memory file system, whose size and number of files are a hard limit on everything that the
//! run adds. The lower directories are never written to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::mount::{UnmountFlags, unmount};

use super::super::error::{Cause, at};
use super::super::trees::NamespaceTrees;
use super::{files, mounts};
use crate::protocol::WireLimits;

/// Files and directories that the layers themselves take: the root, two uppers, two work directories with one inside.
const OWN_INODES: u64 = 8;

/// The mount point of the memory file system while it is layered over the trees.
const PLACE: &str = ".layers";

/// The upper directories. They keep the run's files after all its processes and mounts are gone.
pub(in super::super) struct Upper {
    pub(in super::super) scratch: OwnedFd,
    pub(in super::super) results: OwnedFd,
}

/// Lays them over the trees. The working directory of this process must be `root`.
pub(super) fn lay(
    root: BorrowedFd<'_>,
    trees: &NamespaceTrees,
    limits: &WireLimits,
) -> Result<Upper, Cause> {
    let inodes = limits.upper_inodes.saturating_add(OWN_INODES);
    let memory = mounts::memory(limits.upper_bytes, inodes, "755", mounts::DATA)?;
    files::make_directory(root, Path::new(PLACE))?;
    mounts::place(&memory, root, Path::new(PLACE))?;
    let upper = Upper {
        scratch: lay_one(
            root,
            memory.as_fd(),
            trees.scratch.as_fd(),
            "scratch",
            "scratch.work",
        )?,
        results: lay_one(
            root,
            memory.as_fd(),
            trees.results.as_fd(),
            "results",
            "results.work",
        )?,
    };
    // The program must not reach the layers below its trees.
    unmount(PLACE, UnmountFlags::DETACH).map_err(at("detach the layers"))?;
    unlinkat(root, PLACE, AtFlags::REMOVEDIR).map_err(at("remove the layers' place"))?;
    Ok(upper)
}

fn lay_one(
    root: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    name: &str,
    work_name: &str,
) -> Result<OwnedFd, Cause> {
    let upper = directory(memory, name)?;
    let work = directory(memory, work_name)?;
    let overlay = mounts::overlay(lower, upper.as_fd(), work.as_fd())?;
    files::make_directory(root, Path::new(name))?;
    mounts::place(&overlay, root, Path::new(name))?;
    Ok(upper)
}

fn directory(memory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Cause> {
    mkdirat(memory, name, Mode::from_raw_mode(0o755)).map_err(at(format!("make layer {name}")))?;
    openat(
        memory,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(at(format!("open layer {name}")))
}
