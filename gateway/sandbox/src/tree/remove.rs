//! Removing a tree, whatever it looks like.
//!
//! Invariant: at most a handful of files are open and no stack grows, however deep the tree is. Depth is taken away
//! rather than followed: the directories in a directory are moved up to the top of the tree, which leaves one that
//! holds files only. Each directory is moved once, so the work grows with the number of entries alone. Nothing above
//! or beside the tree is touched, and no link is followed. Others may remove the same tree at the same time.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{self, AtFlags, Dir};
use rustix::io::Errno;

use super::open;
use super::usage::is_self_or_parent;

/// How often a tree is looked at again that did not get empty, which is only so while somebody still writes to it.
const PASSES_MAX: usize = 1000;

/// Removes what stands at `name` in `parent`: a file, a link (not what it points to), or a directory with all it
/// holds. Nothing standing there is fine.
///
/// # Errors
///
/// `InvalidInput` for a name that is not a single one; else what the system said. What is left then can be removed
/// by another call.
pub fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let name = single_name(name)?;
    match fs::unlinkat(parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // Linux says the first, POSIX the second.
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
            // Somebody else who removes it has just moved a directory up.
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
    /// The last number that was given to a directory as its name in the top.
    moved: u64,
    /// The last such number that was looked at.
    followed: u64,
}

impl RemovalTop {
    /// Removes each entry that is listed, with all that is moved up on the way, and returns how many were listed.
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
            // The next pass finds what was not listed in this one.
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

/// Unlinks anything but a directory; says whether that was done.
fn unlinked(at: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// What is gone already need not be removed.
fn gone(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
