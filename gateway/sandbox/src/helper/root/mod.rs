//! Steps: create a private root, and change into it.
//!
//! The root is a small memory file system, read-only in the end. It contains neither `/proc` nor `/sys`: both reveal
//! information about the host, and no runtime needs them.

mod covers;
mod files;
mod layers;
mod mounts;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, fstat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};
use rustix::process::{chroot, fchdir, pivot_root};

use super::error::{Cause, HelperStep, StepError, at};
use crate::job::SessionTrees;
use crate::protocol::Spec;
use crate::tree::{self, Mount, VirtualPath};

pub(super) use files::{DENO, DEVICES, LIBRARIES, tool_path};
pub(super) use layers::Upper;

/// Size of the root itself: the program's text and empty places for mounts.
const ROOT_BYTES: u64 = 4 * 1024 * 1024;

/// Its files and directories, with the directories above parts of the trees.
const ROOT_INODES: u64 = 4096;

/// Files and directories in `/tmp`.
const TEMPORARY_INODES: u64 = 8192;

/// A root that is built and not yet entered.
pub(super) struct Root {
    mount: OwnedFd,
}

impl Root {
    /// Begins it on top of the host's, which stays the root of every path until [`Self::enter`], with what every run
    /// sees.
    pub(super) fn begin() -> Result<Self, StepError> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = mounts::memory(ROOT_BYTES, ROOT_INODES, "755", attributes)
            .map_err(HelperStep::ROOT.failed())?;
        mounts::place(&mount, CWD, Path::new("/")).map_err(HelperStep::ROOT.failed())?;
        files::show_system(mount.as_fd()).map_err(HelperStep::ROOT.failed())?;
        Ok(Self { mount })
    }

    /// Adds what this run sees, with the program's text at its path inside. The directories with the run's writes are
    /// returned.
    pub(super) fn complete(
        &self,
        spec: &Spec,
        trees: &SessionTrees,
        text: Option<(&Path, Vec<u8>)>,
    ) -> Result<Upper, StepError> {
        let mount = &self.mount;
        fill(mount, spec, trees, text).map_err(HelperStep::ROOT.failed())?;
        fchdir(mount).map_err(HelperStep::ROOT.at("change to the root"))?;
        let upper =
            layers::lay(mount.as_fd(), trees, spec).map_err(HelperStep::OVERLAY.failed())?;
        covers::cover(mount.as_fd(), &spec.access).map_err(HelperStep::ROOT.failed())?;
        mounts::add_attributes(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, 0)
            .map_err(HelperStep::ROOT.at("make the root read-only"))?;
        Ok(upper)
    }

    /// Makes it the root of every process in this mount namespace, and detaches the host's root.
    pub(super) fn enter(self) -> Result<(), StepError> {
        fchdir(&self.mount).map_err(HelperStep::ENTER_ROOT.at("change to the root"))?;
        match pivot_root(".", ".") {
            Ok(()) => unmount(".", UnmountFlags::DETACH).map_err(at("detach the host's root")),
            // Container engines filter pivot_root, and an initial RAM disk cannot be moved away. The new root is
            // already mounted over the host's, and without capabilities there is no way back.
            Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => chroot(".").map_err(at("chroot")),
            Err(errno) => Err(at("pivot_root")(errno)),
        }
        .map_err(HelperStep::ENTER_ROOT.failed())?;
        rustix::process::chdir("/").map_err(HelperStep::ENTER_ROOT.at("change to /"))
    }

    /// The same for process 1, which was forked before: where the root could not be exchanged for every process, each
    /// has to change it.
    pub(super) fn follow(self) -> Result<(), StepError> {
        fchdir(&self.mount)
            .map_err(at("change to the root"))
            .and_then(|()| chroot(".").map_err(at("chroot")))
            .map_err(HelperStep::ENTER_ROOT.failed())
    }
}

fn fill(
    mount: &OwnedFd,
    spec: &Spec,
    trees: &SessionTrees,
    text: Option<(&Path, Vec<u8>)>,
) -> Result<(), Cause> {
    let root = mount.as_fd();
    // First, so that a runtime of the host's `/tmp` is shown on top of it.
    let temporary = mounts::memory(
        spec.limits.temporary_bytes,
        TEMPORARY_INODES,
        "1777",
        mounts::DATA,
    )?;
    files::make_directory(root, Path::new("tmp"))?;
    mounts::place(&temporary, root, Path::new("tmp"))?;
    files::show_runtime(root, spec)?;
    if let Some((path, bytes)) = text {
        files::write_program(root, path, &bytes)?;
    }
    for (mount, tree) in [(Mount::Tools, &trees.tools), (Mount::Skills, &trees.skills)] {
        files::make_directory(root, Path::new(mount.name()))?;
        for path in spec.access.readable(mount) {
            show_part(root, tree.as_fd(), &path)?;
        }
    }
    Ok(())
}

/// Shows the part of a read-only tree that `path` names, if it has one. The others have no place in the root.
fn show_part(root: BorrowedFd<'_>, tree: BorrowedFd<'_>, path: &VirtualPath) -> Result<(), Cause> {
    let part = match tree::hold(tree, path.beneath().as_str()) {
        Ok(part) => part,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(errno) => return Err(at(format!("open {path}"))(errno)),
    };
    let stat = fstat(&part).map_err(at(format!("look at {path}")))?;
    let place = files::place_of(path);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => files::make_directory(root, &place)?,
        FileType::RegularFile => files::make_file(root, &place)?,
        _ => return Ok(()),
    }
    let read_only = mounts::DATA | MountAttrFlags::MOUNT_ATTR_RDONLY;
    mounts::show_open(part.as_fd(), root, &place, read_only)
}
