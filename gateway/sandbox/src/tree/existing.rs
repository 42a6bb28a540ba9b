//! What a session's trees have already: their usage, and the entry at a name, which would be removed or overwritten.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{self, AtFlags, Stat};
use rustix::io::Errno;

use super::commit_error::CommitError;
use super::open::{self, FileKind};
use super::session::SessionDirectory;
use super::usage::{TreeUsage, usage};

/// What a session's two trees take together.
pub(super) fn measure(session: &SessionDirectory) -> Result<TreeUsage, CommitError> {
    let scratch = usage(session.scratch()).map_err(CommitError::system("measure /scratch"))?;
    let results = usage(session.results()).map_err(CommitError::system("measure /results"))?;
    Ok(scratch.plus(results))
}

/// The kind of the existing entry at a name.
pub(super) fn existing_kind(
    lower: BorrowedFd<'_>,
    name: &CStr,
) -> Result<Option<FileKind>, CommitError> {
    Ok(existing(lower, name)?.map(|stat| FileKind::of(&stat)))
}

/// Its usage with all its content, itself included.
pub(super) fn existing_usage(
    lower: BorrowedFd<'_>,
    name: &CStr,
) -> Result<Option<(FileKind, TreeUsage)>, CommitError> {
    let Some(stat) = existing(lower, name)? else {
        return Ok(None);
    };
    let kind = FileKind::of(&stat);
    let itself = |bytes| TreeUsage { bytes, inodes: 1 };
    let used = match kind {
        FileKind::File => itself(u64::try_from(stat.st_size).unwrap_or(0)),
        FileKind::Other => itself(0),
        FileKind::Directory => {
            let directory =
                open::directory(lower, name).map_err(CommitError::system("open a directory"))?;
            let held =
                usage(directory.as_fd()).map_err(CommitError::system("measure a directory"))?;
            itself(0).plus(held)
        }
    };
    Ok(Some((kind, used)))
}

fn existing(lower: BorrowedFd<'_>, name: &CStr) -> Result<Option<Stat>, CommitError> {
    match fs::statat(lower, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(CommitError::system("look at a file")(errno)),
    }
}
