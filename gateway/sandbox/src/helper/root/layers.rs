//! Step: writable layers over the session's trees.
//!
//! Both layers are on one memory file system, whose size and number of files are a hard limit on everything that the
//! run adds. The lower directories are never written to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::super::error::{Cause, at};
use super::files::{open_place, place_of};
use super::{files, mounts};
use crate::job::SessionTrees;
use crate::protocol::Spec;
use crate::tree::{self, Mount, VirtualPath};

/// Files and directories that two layers themselves take: the root, two uppers, two work directories with one inside.
const OWN_INODES: u64 = 8;

/// The mount point of the memory file system while it is layered over the trees.
const PLACE: &str = ".layers";

/// The upper directories. They keep the run's files after all its processes and mounts are gone.
pub(in super::super) struct Upper {
    pub(in super::super) scratch: OwnedFd,
    pub(in super::super) results: OwnedFd,
}

/// Lays them over the parts of the trees that may be read; the others have no place in the root. The working directory
/// of this process must be `root`.
pub(super) fn lay(root: BorrowedFd<'_>, trees: &SessionTrees, spec: &Spec) -> Result<Upper, Cause> {
    let writable = spec.access.writable();
    let parts = [
        (spec.access.readable(Mount::Scratch), &trees.scratch),
        (spec.access.readable(Mount::Results), &trees.results),
    ];
    // What the policy's own directories take is none of the run's.
    let paths = parts.iter().flat_map(|(paths, _)| paths).chain(&writable);
    let own_inodes: usize = match spec.access.is_whole() {
        true => 0,
        false => paths.map(|path| 3 + path.names().len()).sum(),
    };
    let inodes = spec.limits.upper_inodes + OWN_INODES + own_inodes as u64;
    let memory = mounts::memory(spec.limits.upper_bytes, inodes, "755", mounts::DATA)?;
    files::make_directory(root, Path::new(PLACE))?;
    mounts::place(&memory, root, Path::new(PLACE))?;
    let upper = Upper {
        scratch: directory(memory.as_fd(), Path::new("scratch"))?,
        results: directory(memory.as_fd(), Path::new("results"))?,
    };
    for mount in [Mount::Scratch, Mount::Results] {
        files::make_directory(root, Path::new(mount.name()))?;
    }
    let parts = parts
        .iter()
        .flat_map(|(paths, tree)| paths.iter().map(move |path| (path, tree.as_fd())));
    for (number, (path, tree)) in parts.enumerate() {
        lay_one(root, memory.as_fd(), tree, path, number)?;
    }
    for path in &writable {
        make_writable_directory(root, path)?;
    }
    // The program must not reach the layers below its trees.
    unmount(PLACE, UnmountFlags::DETACH).map_err(at("detach the layers"))?;
    unlinkat(root, PLACE, AtFlags::REMOVEDIR).map_err(at("remove the layers' place"))?;
    Ok(upper)
}

/// Lays one over the part of a tree that `path` names. The layer has the part's path within its tree, as the commit
/// walks it.
fn lay_one(
    root: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    tree: BorrowedFd<'_>,
    path: &VirtualPath,
    number: usize,
) -> Result<(), Cause> {
    let empty = format!("empty.{number}");
    let lower = match tree::hold(tree, path.beneath().as_str()) {
        Ok(part) => part,
        Err(Errno::NOENT | Errno::NOTDIR) => directory(memory, Path::new(&empty))?,
        Err(errno) => return Err(at(format!("open {path}"))(errno)),
    };
    let stat = fstat(&lower).map_err(at(format!("look at {path}")))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        // A file is where the policy has a directory: there is nothing in it.
        return Ok(());
    }
    let place = place_of(path);
    let upper = directory(memory, &place)?;
    let work = directory(memory, Path::new(&format!("work.{number}")))?;
    let overlay = mounts::overlay(lower.as_fd(), upper.as_fd(), work.as_fd())?;
    files::make_directory(root, &place)?;
    mounts::place(&overlay, root, &place)
}

/// Makes a directory of the policy's that the session does not have, so that code can write to it.
fn make_writable_directory(root: BorrowedFd<'_>, path: &VirtualPath) -> Result<(), Cause> {
    let mut place = PathBuf::new();
    for component in &place_of(path) {
        let parent = match place.as_os_str().is_empty() {
            true => None,
            false => match open_place(root, &place) {
                Ok(parent) => Some(parent),
                // A file is at this path or at one of its parents.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                Err(errno) => return Err(at(format!("open {path}"))(errno)),
            },
        };
        let parent = parent.as_ref().map_or(root, AsFd::as_fd);
        match mkdirat(parent, component, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST | Errno::NOTDIR) => {}
            Err(errno) => return Err(at(format!("make {path}"))(errno)),
        }
        place.push(component);
    }
    Ok(())
}

/// Makes a directory with its missing parents, and opens it.
fn directory(memory: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Cause> {
    files::make_directory(memory, path)?;
    openat(
        memory,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(at(format!("open layer {}", path.display())))
}
