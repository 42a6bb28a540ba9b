//! The existing entry at a name of a kept tree, which would be removed or overwritten.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::commit::CommitError;
use super::open::{self, FileKind};
use super::usage::{TreeUsage, usage};

/// The kind of the existing entry at a name.
pub(super) fn existing_kind(
    lower: BorrowedFd<'_>,
    name: &CStr,
) -> Result<Option<FileKind>, CommitError> {
    match fs::statat(lower, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileKind::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(CommitError::system("look at a file")(errno)),
    }
}

/// Its usage with all its content, itself included.
pub(super) fn existing_usage(
    lower: BorrowedFd<'_>,
    name: &CStr,
) -> Result<Option<(FileKind, TreeUsage)>, CommitError> {
    let stat = match fs::statat(lower, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(CommitError::system("look at a file")(errno)),
    };
    let kind = FileKind::of(&stat);
    let itself = TreeUsage {
        bytes: if kind == FileKind::File {
            u64::try_from(stat.st_size).unwrap_or(0)
        } else {
            0
        },
        inodes: 1,
    };
    if kind != FileKind::Directory {
        return Ok(Some((kind, itself)));
    }
    let directory =
        open::directory(lower, name).map_err(CommitError::system("open a directory"))?;
    let held = usage(directory.as_fd()).map_err(CommitError::system("measure a directory"))?;
    Ok(Some((kind, itself.plus(held))))
}
