//! Reading one file of a session, or a part of it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;

use rustix::fs::{Stat, fstat};

use super::error::TreeError;
use super::open::{self, FileKind};
use crate::job::SessionTrees;
use crate::paths::{Mount, TreeAccess, VirtualPath};

/// The content that was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    /// The content, or the part of it that was asked for.
    pub bytes: Vec<u8>,
    /// The size of the whole file.
    pub size_bytes: u64,
    /// When it was last written, in milliseconds since 1970.
    pub modified_at_ms: i64,
}

/// Reads a regular file of at most `bytes_max` bytes, whole. Whether it is text is for the caller to see.
///
/// # Errors
///
/// See [`TreeError`]; nothing but a regular file is opened.
pub fn read(
    view: &SessionTrees,
    path: &VirtualPath,
    bytes_max: u64,
    access: &TreeAccess,
) -> Result<FileContent, TreeError> {
    let (held, stat) = find(view, path, access)?;
    let too_large = |size_bytes| TreeError::TooLarge {
        path: path.clone(),
        size_bytes,
        bytes_max,
    };
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if size_bytes > bytes_max {
        return Err(too_large(size_bytes));
    }
    // One byte more than allowed detects a file that has grown since.
    let content = read_from(&held, &stat, path, 0, bytes_max.saturating_add(1))?;
    let read_bytes = content.bytes.len() as u64;
    if read_bytes > bytes_max {
        return Err(too_large(read_bytes));
    }
    Ok(content)
}

/// Reads at most `bytes_max` bytes of a regular file from `offset` on; none behind its end.
///
/// # Errors
///
/// See [`TreeError`]; nothing but a regular file is opened.
pub fn read_part(
    view: &SessionTrees,
    path: &VirtualPath,
    offset: u64,
    bytes_max: u64,
    access: &TreeAccess,
) -> Result<FileContent, TreeError> {
    let (held, stat) = find(view, path, access)?;
    read_from(&held, &stat, path, offset, bytes_max)
}

fn read_from(
    held: &OwnedFd,
    stat: &Stat,
    path: &VirtualPath,
    offset: u64,
    bytes_max: u64,
) -> Result<FileContent, TreeError> {
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    let wanted = size_bytes.saturating_sub(offset).min(bytes_max);
    let mut file = File::from(open::reopen(held).map_err(TreeError::on(path, "open a file"))?);
    let mut bytes = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
    let mut reading = || {
        file.seek(SeekFrom::Start(offset))?;
        (&file).take(bytes_max).read_to_end(&mut bytes)
    };
    reading().map_err(TreeError::system("read a file"))?;
    Ok(FileContent {
        bytes,
        size_bytes,
        modified_at_ms: modified_at_ms(stat),
    })
}

/// The file, not yet opened for reading, where a run sees it.
fn find(
    view: &SessionTrees,
    path: &VirtualPath,
    access: &TreeAccess,
) -> Result<(OwnedFd, Stat), TreeError> {
    if !access.shows(path) {
        return Err(TreeError::Denied(path.clone(), "read"));
    }
    let Some(mount) = path.mount() else {
        return Err(TreeError::IsADirectory(path.clone()));
    };
    let held = open::hold(view.mount(mount), path.beneath().as_str())
        .map_err(TreeError::on(path, "find a file"))?;
    let stat = fstat(&held).map_err(TreeError::system("look at a file"))?;
    refuse_all_but_own_file(path, mount, &stat)?;
    Ok((held, stat))
}

fn refuse_all_but_own_file(path: &VirtualPath, mount: Mount, stat: &Stat) -> Result<(), TreeError> {
    match FileKind::of(stat) {
        FileKind::Directory => Err(TreeError::IsADirectory(path.clone())),
        FileKind::Other => Err(TreeError::Special(path.clone())),
        // The host writes the read-only trees and may link their files; what an agent can write may not be a second
        // name of something else.
        FileKind::File if mount.is_writable() && stat.st_nlink != 1 => {
            Err(TreeError::Linked(path.clone()))
        }
        FileKind::File => Ok(()),
    }
}

/// When an inode was last written, in milliseconds since 1970. Runs set this as they like.
pub(super) fn modified_at_ms(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime
        .saturating_mul(1000)
        .saturating_add(nanoseconds / 1_000_000)
}
