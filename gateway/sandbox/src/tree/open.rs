//! The only ways into an untrusted tree.
//!
//! Invariant: everything that is opened here is beneath the given directory, on the same mount, and was reached without
//! a link. A file is opened for reading only after its inode was seen to be a regular file, through a descriptor that
//! already holds that inode, so nothing can be put in its place in between; and never in a way that waits.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// How often an open is tried again that the kernel could not settle because of a rename elsewhere.
const ATTEMPTS_MAX: usize = 64;

/// The kind of a file system entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link, pipe, socket or device. It is never followed nor opened.
    Other,
}

impl FileKind {
    /// Its name in replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Other => "other",
        }
    }

    /// Of an inode.
    pub(super) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// Opens the inode at `path` as a reference only (`O_PATH`).
pub(crate) fn hold<P: Arg + Copy>(directory: impl AsFd, path: P) -> Result<OwnedFd> {
    beneath(directory, path, OFlags::PATH | OFlags::NOFOLLOW)
}

/// Opens the directory at `path` for reading. Anything else is `ENOTDIR`, unopened.
pub(super) fn directory<P: Arg + Copy>(at: impl AsFd, path: P) -> Result<OwnedFd> {
    beneath(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW,
    )
}

/// Opens the directory at `path` after ensuring that its owner can list, enter and change it.
pub(super) fn directory_made_ours<P: Arg + Copy>(at: impl AsFd, path: P) -> Result<OwnedFd> {
    match directory(at.as_fd(), path) {
        Err(Errno::ACCESS) => {
            let held = hold(at.as_fd(), path)?;
            if FileKind::of(&fs::fstat(&held)?) != FileKind::Directory {
                return Err(Errno::NOTDIR);
            }
            make_ours(&held, Mode::RWXU)?;
            directory(at, path)
        }
        Ok(opened) => {
            if fs::fstat(&opened)?.st_mode & Mode::RWXU.as_raw_mode() != Mode::RWXU.as_raw_mode() {
                fs::fchmod(&opened, Mode::RWXU)?;
            }
            Ok(opened)
        }
        Err(other) => Err(other),
    }
}

/// Reopens a directory, after ensuring the same. In a directory that its owner may not enter, not even `.` can be
/// opened.
pub(super) fn root_made_ours(root: BorrowedFd<'_>) -> Result<OwnedFd> {
    if fs::fstat(root)?.st_mode & Mode::RWXU.as_raw_mode() != Mode::RWXU.as_raw_mode() {
        make_ours(root, Mode::RWXU)?;
    }
    directory(root, c".")
}

/// Opens for reading the file of a referenced inode. The caller has checked that it is a regular file.
pub(super) fn reopen(held: &OwnedFd) -> Result<OwnedFd> {
    // The name in /proc is the kernel's own link to the referenced inode; no other link is followed.
    fs::open(
        proc_name(held),
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Opens it likewise, first making it readable for the owner if its mode forbids that.
pub(super) fn reopen_made_ours(held: &OwnedFd) -> Result<OwnedFd> {
    match reopen(held) {
        Err(Errno::ACCESS) => {
            make_ours(held, Mode::RUSR)?;
            reopen(held)
        }
        other => other,
    }
}

/// Sets the mode of a referenced inode that cannot be opened.
fn make_ours(held: impl AsFd, mode: Mode) -> Result<()> {
    fs::chmodat(CWD, proc_name(held), mode, AtFlags::empty())
}

fn proc_name(held: impl AsFd) -> String {
    format!("/proc/thread-self/fd/{}", held.as_fd().as_raw_fd())
}

fn beneath<P: Arg + Copy>(at: impl AsFd, path: P, flags: OFlags) -> Result<OwnedFd> {
    let mut attempts = 0;
    loop {
        match fs::openat2(
            at.as_fd(),
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            RESOLVE,
        ) {
            Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS_MAX => attempts += 1,
            result => return result,
        }
    }
}
