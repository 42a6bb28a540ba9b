//! Where files are prepared, and where those that were replaced wait for the end of a commit.
//!
//! Invariant: each use has its own directory within `.mooring/staging/`, under a unique name, and whatever no journal
//! names there can be deleted.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode};
use rustix::rand::{GetRandomFlags, getrandom};

use super::open;
use super::remove::remove;
use super::session::SessionDirectory;

/// A staging directory.
#[derive(Debug)]
pub(super) struct Staging {
    name: String,
    directory: OwnedFd,
}

impl Staging {
    /// Creates one.
    pub(super) fn begin(session: &SessionDirectory) -> io::Result<Self> {
        let name = unique_name()?;
        fs::mkdirat(session.staging(), name.as_str(), Mode::RWXU)?;
        Self::open(session, name)
    }

    /// Opens an existing one.
    pub(super) fn open(session: &SessionDirectory, name: String) -> io::Result<Self> {
        let directory = open::directory(session.staging(), name.as_str())?;
        Ok(Self { name, directory })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Removes it with its content.
    pub(super) fn discard(self, session: &SessionDirectory) -> io::Result<()> {
        remove(session.staging(), OsStr::new(&self.name))
    }
}

/// A name that no other process chooses, not even one with the same number in another container.
pub(crate) fn unique_name() -> io::Result<String> {
    let mut random = [0_u8; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}

/// The name of a prepared file or directory.
pub(super) fn new_name(slot: u64) -> String {
    format!("new-{slot}")
}

/// The name of an old entry that was moved away.
pub(super) fn old_name(slot: u64) -> String {
    format!("old-{slot}")
}
