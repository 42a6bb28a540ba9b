//! Removes a tree of any shape.
//!
//! Invariant: only a handful of files are open and no stack grows, however deep the tree is. The tree is flattened
//! instead of descended: the directories in a directory are moved to the top of the tree, which leaves only files in
//! it. Each directory is moved once, so the work is linear in the number of entries. Nothing outside of the tree is
//! touched, and no link is followed. Several processes may remove the same tree concurrently.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{self, AtFlags, Dir};
use rustix::io::Errno;

use super::open;
use super::usage::is_self_or_parent;

/// How often a tree that did not become empty is retried, which happens only while another process still writes to it.
const PASSES_MAX: usize = 1000;

/// Removes the entry `name` of `parent`: a file, a link (not its target), or a directory with its content. The entry
/// need not exist.
///
/// # Errors
///
/// `InvalidInput` if `name` is not a single component; otherwise the system's error. Another call can remove the rest.
pub fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let name = single_name(name)?;
    match fs::unlinkat(parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Linux returns the first, POSIX specifies the second.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    for _ in 0..PASSES_MAX {
        match open::directory_made_ours(parent, name.as_c_str()) {
            Ok(top) => empty(top)?,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        match fs::unlinkat(parent, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Another process that removes it has just moved a directory up.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

fn single_name(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(CString::new(bytes)?)
}

/// Removes everything in `top`.
fn empty(top: OwnedFd) -> io::Result<()> {
    let mut top = RemovalTop {
        listing: Dir::read_from(&top)?,
        directory: top,
        moved: 0,
        followed: 0,
    };
    for _ in 0..PASSES_MAX {
        if top.pass()? == 0 {
            return Ok(());
        }
        top.listing.rewind();
    }
    Err(Errno::NOTEMPTY.into())
}

/// The top of the tree that is removed, to which directories are moved up.
struct RemovalTop {
    directory: OwnedFd,
    listing: Dir,
    /// The last number that was assigned to a directory as its name at the top.
    moved: u64,
    /// The last such number that was processed.
    followed: u64,
}

impl RemovalTop {
    /// Removes each listed entry, with everything moved up on the way, and returns the number of listed entries.
    fn pass(&mut self) -> io::Result<u64> {
        let mut seen = 0;
        while let Some(entry) = self.listing.read() {
            let entry = entry?;
            let name = entry.file_name();
            if is_self_or_parent(name) {
                continue;
            }
            seen += 1;
            self.remove_entry(name)?;
            while self.followed < self.moved {
                self.followed += 1;
                self.remove_entry(&number_name(self.followed))?;
            }
        }
        Ok(seen)
    }

    fn remove_entry(&mut self, name: &CStr) -> io::Result<()> {
        if unlinked(&self.directory, name)? {
            Ok(())
        } else {
            self.remove_directory(name)
        }
    }

    /// Removes a directory in the top, after moving those in it up.
    fn remove_directory(&mut self, name: &CStr) -> io::Result<()> {
        let directory = match open::directory_made_ours(&self.directory, name) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let inner = entry.file_name();
            if !is_self_or_parent(inner) && !unlinked(&directory, inner)? {
                self.move_up(&directory, inner)?;
            }
        }
        match fs::unlinkat(&self.directory, name, AtFlags::REMOVEDIR) {
            // The next pass finds entries that this one did not list.
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            other => gone(other).map_err(io::Error::from),
        }
    }

    /// Moves a directory to the top, under a name that no other has there. An empty directory that has it is replaced,
    /// which is as good.
    fn move_up(&mut self, from: &OwnedFd, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let target = number_name(self.moved);
            match fs::renameat(from, name, &self.directory, target.as_c_str()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                // Moving a directory changes its entry "..", which its own mode can forbid.
                Err(Errno::ACCESS) => {
                    open::directory_made_ours(from, name)?;
                    return gone(fs::renameat(from, name, &self.directory, target.as_c_str()))
                        .map_err(io::Error::from);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// The name of a directory that was moved up.
fn number_name(number: u64) -> CString {
    // Digits hold no zero byte.
    CString::new(format!("{number:x}")).unwrap_or_default()
}

/// Unlinks anything but a directory; returns whether it did.
fn unlinked(at: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// An entry that no longer exists counts as removed.
fn gone(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
