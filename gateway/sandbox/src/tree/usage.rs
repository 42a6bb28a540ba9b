//! The usage of a tree.
//!
//! Invariant: bytes are the lengths of files as they would be read, so a sparse file counts in full, and a file with
//! two names counts twice: what is measured is what a copy of the tree could take.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, statat};
use rustix::io::Errno;

use super::open::{self, FileKind};
use crate::limits::Limits;

/// Deepest tree that is measured. Committed trees are never deeper than a path may be; a deeper one was made by a run,
/// and is refused rather than walked with one descriptor per level.
const DEPTH_MEASURED_MAX: usize = 64;

/// The usage of a tree, without its own directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// The lengths of all regular files.
    pub bytes: u64,
    /// Files, directories and anything else.
    pub inodes: u64,
}

impl TreeUsage {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// The rest after subtracting `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    /// Most that trees of this usage may take from now on. The limits may have been lowered: a change may still make the
    /// trees smaller then.
    pub(super) fn ceiling(self, limits: &Limits) -> Self {
        Self {
            bytes: limits.disk_bytes.max(self.bytes),
            inodes: limits.inodes.max(self.inodes),
        }
    }
}

/// Measures a tree. What vanishes meanwhile is not counted.
///
/// # Errors
///
/// The system's error, and `ENAMETOOLONG` for a tree that is deeper than 64 directories.
pub fn usage(directory: BorrowedFd<'_>) -> io::Result<TreeUsage> {
    let mut total = TreeUsage::default();
    let mut open_directories = vec![Dir::new(open::directory(directory, c".")?)?];
    while let Some(current) = open_directories.last_mut() {
        let Some(entry) = current.read() else {
            open_directories.pop();
            continue;
        };
        let entry = entry?;
        if is_self_or_parent(entry.file_name()) {
            continue;
        }
        let at = current.fd()?;
        let stat = match statat(at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        total.inodes += 1;
        match FileKind::of(&stat) {
            FileKind::File => {
                total.bytes = total
                    .bytes
                    .saturating_add(u64::try_from(stat.st_size).unwrap_or(0))
            }
            FileKind::Other => {}
            FileKind::Directory => {
                let next: OwnedFd = match open::directory(at, entry.file_name()) {
                    Err(Errno::NOENT | Errno::NOTDIR) => continue,
                    other => other?,
                };
                if open_directories.len() >= DEPTH_MEASURED_MAX {
                    return Err(Errno::NAMETOOLONG.into());
                }
                open_directories.push(Dir::new(next)?);
            }
        }
    }
    Ok(total)
}

/// Whether a directory that was just opened is empty. One that cannot be opened or listed is not.
pub(super) fn is_empty(opened: rustix::io::Result<OwnedFd>) -> bool {
    let listing = opened.and_then(Dir::new);
    listing.is_ok_and(|mut listing| {
        listing.all(|entry| entry.is_ok_and(|entry| is_self_or_parent(entry.file_name())))
    })
}

/// Whether a directory lists itself or its parent.
pub(super) fn is_self_or_parent(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
