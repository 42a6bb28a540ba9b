//! Step: the private directory of a run of the degraded tier.
//!
//! The host created it for this run only: copies of the session's trees, and directories for the program's source and
//! for temporary files. This step writes the source, and makes the run's user the owner of what the program may write
//! to.

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, openat,
    openat2, statat,
};

use super::error::{Cause, HelperStep, StepError, at};
use super::own_user::OwnUser;
use super::places::Places;
use crate::protocol::SpecDescriptors;

/// Read-only content belongs to the host, and is readable by every user who can enter the directory.
const TEXT_MODE: Mode = Mode::from_raw_mode(0o444);

/// The group of the run's user can enter and list it, since python searches it for the tools' package; no other user
/// except the host can.
const SHARED_MODE: Mode = Mode::from_raw_mode(0o750);

/// The run's private directory as the helper sees it, found by its path.
pub(super) struct PrivateDirectoryView {
    directory: OwnedFd,
    pub(super) places: Places,
}

impl PrivateDirectoryView {
    /// Locates it: the directory that contains the four trees under their own names.
    pub(super) fn find(passed: &SpecDescriptors<OwnedFd>) -> Result<Self, StepError> {
        find(passed).map_err(HelperStep::TREES.failed())
    }

    /// Writes the program's source to the path that the runtime reads.
    pub(super) fn write_text(&self, path: &Path, bytes: &[u8]) -> Result<(), StepError> {
        let inside = path.strip_prefix(self.places.root()).unwrap_or(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.directory, inside, flags, TEXT_MODE)
            .map_err(HelperStep::TREES.at("make the program's file"))?;
        let written = fs::File::from(file).write_all(bytes);
        written.map_err(HelperStep::TREES.at("write the program"))
    }

    /// Makes the run's user the owner of what the program may write to. Only that user and the host can enter the
    /// directory.
    pub(super) fn give_to(&self, user: &OwnUser) -> Result<(), StepError> {
        self.give(user).map_err(HelperStep::IDENTITY.failed())
    }

    fn give(&self, user: &OwnUser) -> Result<(), Cause> {
        let (owner, group) = (user.uid(), user.gid());
        for path in self.places.writable() {
            let name = path.file_name().unwrap_or_default();
            let tree = openat(&self.directory, name, DIRECTORY, Mode::empty())
                .map_err(at(format!("open {}", path.display())))?;
            give_tree(tree.as_fd(), owner, group)?;
        }
        chownat(&self.directory, "", None, Some(group), AtFlags::EMPTY_PATH)
            .map_err(at("give the private directory"))?;
        rustix::fs::fchmod(&self.directory, SHARED_MODE).map_err(at("open the private directory"))
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn find(passed: &SpecDescriptors<OwnedFd>) -> Result<PrivateDirectoryView, Cause> {
    let link = format!("/proc/self/fd/{}", passed.scratch.as_raw_fd());
    let scratch: PathBuf = fs::read_link(link).map_err(at("scratch"))?;
    let root = scratch
        .parent()
        .ok_or_else(|| Cause::words("scratch stands in no directory"))?;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let directory = openat2(CWD, root, DIRECTORY, Mode::empty(), resolve)
        .map_err(at(format!("open {}", root.display())))?;
    for (name, tree) in [
        ("tools", &passed.tools),
        ("skills", &passed.skills),
        ("scratch", &passed.scratch),
        ("results", &passed.results),
    ] {
        let given = fstat(tree).map_err(at(name))?;
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at(name))?;
        if (given.st_dev, given.st_ino) != (found.st_dev, found.st_ino) {
            return Err(Cause::words(format!(
                "{name} does not stand in the run's private directory"
            )));
        }
    }
    Ok(PrivateDirectoryView {
        directory,
        places: Places::beneath(root),
    })
}

/// The host has just created the tree: it consists of files and directories, and is no deeper than a path may be.
fn give_tree(tree: BorrowedFd<'_>, owner: Uid, group: Gid) -> Result<(), Cause> {
    chownat(tree, "", Some(owner), Some(group), AtFlags::EMPTY_PATH)
        .map_err(at("give a directory"))?;
    for entry in Dir::read_from(tree).map_err(at("list a tree"))? {
        let entry = entry.map_err(at("list a tree"))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = statat(tree, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at("look at a file"))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let next =
                openat(tree, name, DIRECTORY, Mode::empty()).map_err(at("open a directory"))?;
            give_tree(next.as_fd(), owner, group)?;
        } else {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(tree, name, Some(owner), Some(group), flags).map_err(at("give a file"))?;
        }
    }
    Ok(())
}
