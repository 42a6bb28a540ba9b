//! The trash: directories that are no longer used, until they are deleted.
//!
//! Invariant: nothing comes back from the trash. Things get there by one rename, and one process at a time deletes.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use mooring_sandbox::tree;
use rustix::fs::{self, OFlags};
use rustix::io::Errno;

use super::directory::{self, FILE_MODE, LOCKS, TRASH, VolumeError};
use super::lock::FileLock;
use super::{Volume, unix_now_ms};
use crate::place::CodePlace;

/// The lock held while deleting; no server's name begins with a dot.
const LOCK: &str = ".trash";
/// Most entries of one name in the trash at once.
const SAME_NAME_MAX: u32 = 10_000;
/// The prefix of the names of tool trees in the trash.
const TOOLS_PREFIX: &str = "tools-";
/// How long a tree of tools stays in the trash: longer than any run that had it open may last.
const TOOLS_LIE: Duration = Duration::from_secs(15 * 60);

/// How much was deleted, and how much remains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrashOutcome {
    /// How many things were deleted.
    pub removed: usize,
    /// How many are left: not yet due, beyond the limit, or being deleted by another process.
    pub left: usize,
}

impl Volume {
    /// Deletes at most `limit` of the entries in the trash. Does nothing while another process does this.
    ///
    /// # Errors
    /// Names the step; all other entries that can be deleted are still deleted.
    pub fn empty_trash(&self, limit: usize) -> Result<TrashOutcome, VolumeError> {
        let base = self.shared.base.as_fd();
        let not_locked = "the trash could not be locked";
        let not_read = "the trash could not be read";
        let locks =
            directory::make_directories(base, &[LOCKS]).map_err(VolumeError::at(not_locked))?;
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = directory::open(locks.as_fd(), LOCK, flags, FILE_MODE)
            .map_err(VolumeError::at(not_locked))?;
        let trash =
            directory::make_directories(base, &[TRASH]).map_err(VolumeError::at(not_read))?;
        let lock = FileLock::take(file, Duration::ZERO).map_err(VolumeError::at(not_locked))?;
        let limit = if lock.is_some() { limit } else { 0 };
        let (mut emptied, mut failed) = (TrashOutcome::default(), None);
        let now_ms = unix_now_ms();
        for name in directory::names(trash.as_fd()).map_err(VolumeError::at(not_read))? {
            let name = name.map_err(VolumeError::at(not_read))?;
            if emptied.removed >= limit || !is_due(trash.as_fd(), &name, now_ms) {
                emptied.left = emptied.left.saturating_add(1);
                continue;
            }
            match tree::remove(trash.as_fd(), name.as_ref()) {
                Ok(()) => emptied.removed = emptied.removed.saturating_add(1),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(emptied), |error| {
            Err(VolumeError::at(
                "an entry of the trash could not be deleted",
            )(error))
        })
    }
}

fn is_due(trash: BorrowedFd<'_>, name: &str, now_ms: u64) -> bool {
    let lies_ms = directory::millis(TOOLS_LIE);
    !name.starts_with(TOOLS_PREFIX)
        || directory::modified_at_ms(trash, name)
            .is_ok_and(|since_ms| now_ms.saturating_sub(since_ms) >= lies_ms)
}

/// Moves the directory of a session into the trash. The caller holds the session's lock.
pub(super) fn discard_session(
    base: BorrowedFd<'_>,
    place: &CodePlace,
    generation: u64,
) -> Result<(), Errno> {
    let name = format!("{}.{generation}", place.id);
    discard(base, &place.relative_path(), &name).map(drop)
}

/// Moves a tree of tools into the trash. It stays there for a while, because a call may just have opened it.
pub(super) fn discard_tools(base: BorrowedFd<'_>, path: &Path, hash: &str) -> Result<(), Errno> {
    // The time is set before the move: the process that deletes must never see the old one.
    let path_text = path.to_str().ok_or(Errno::INVAL)?;
    directory::set_modified(base, path_text, unix_now_ms())?;
    discard(base, path, &format!("{TOOLS_PREFIX}{hash}")).map(drop)
}

/// Moves a directory into the trash under `name`, with a number after it if that name is taken. Returns the name.
pub(super) fn discard(base: BorrowedFd<'_>, path: &Path, name: &str) -> Result<String, Errno> {
    directory::make_directory(base, TRASH)?;
    for attempt in 0..SAME_NAME_MAX {
        let name = match attempt {
            0 => name.to_owned(),
            attempt => format!("{name}.{attempt}"),
        };
        // A rename onto an empty directory replaces it, which is as good; onto any other it is refused.
        match fs::renameat(base, path, base, Path::new(TRASH).join(&name)) {
            Ok(()) => return Ok(name),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}
