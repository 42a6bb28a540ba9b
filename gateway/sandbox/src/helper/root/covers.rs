//! Step: covers over what a policy denies within the readable parts of the trees.
//!
//! A cover is a mount that the program can neither remove nor move, and whose root no one can open. It is mounted on
//! the directory itself, so it stays there whatever is renamed above.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, fstat, mkdirat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::super::error::{Cause, at};
use super::files::{open_place, place_of};
use super::mounts;
use crate::tree::{TreeAccess, VirtualPath};

/// Size of a cover, which stays empty.
const COVER_BYTES: u64 = 4096;
const COVER_INODES: u64 = 2;

/// Covers each denied path.
pub(super) fn cover(root: BorrowedFd<'_>, access: &TreeAccess) -> Result<(), Cause> {
    access
        .denied()
        .iter()
        .try_for_each(|path| cover_one(root, path))
}

fn cover_one(root: BorrowedFd<'_>, path: &VirtualPath) -> Result<(), Cause> {
    let place = place_of(path);
    let found = match open_place(root, &place) {
        Err(Errno::NOENT) => {
            make(root, &place).map_err(at(format!("make {path}")))?;
            open_place(root, &place)
        }
        found => found,
    };
    let found = match found {
        Ok(found) => found,
        // There is no such path, nor can there be one but in a directory that the run itself makes: what it writes
        // there is not kept.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(errno) => return Err(at(format!("open {path}"))(errno)),
    };
    let stat = fstat(&found).map_err(at(format!("look at {path}")))?;
    let read_only = mounts::DATA | MountAttrFlags::MOUNT_ATTR_RDONLY;
    let cover = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => mounts::memory(COVER_BYTES, COVER_INODES, "0", read_only)?,
        // On such a mount a device cannot be opened.
        _ => {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let device = open_tree(CWD, "/dev/null", flags).map_err(at("open tree /dev/null"))?;
            mounts::add_attributes(device.as_fd(), read_only, 0)
                .map_err(at("set attributes of /dev/null"))?;
            device
        }
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(cover.as_fd(), "", found.as_fd(), "", flags).map_err(at(format!("cover {path}")))
}

/// Makes a directory to cover, where its parent exists and takes one.
fn make(root: BorrowedFd<'_>, place: &Path) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
        return Ok(());
    };
    let made = open_place(root, parent)
        .and_then(|parent| mkdirat(parent, name, Mode::from_raw_mode(0o755)));
    match made {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ROFS | Errno::LOOP) => Ok(()),
        Err(errno) => Err(errno),
    }
}
