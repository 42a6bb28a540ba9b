//! The directory of one session, opened.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode};
use rustix::io::Errno;

use super::error::TreeError;
use super::journal;
use super::open;
use crate::paths::Mount;

/// The host's own directory within a session's: stamp, journal, staging. It is never mounted.
const HOST: &str = ".mooring";

/// Where files are prepared before they are moved into place.
const STAGING: &str = "staging";

/// The directory of one session: `scratch/`, `results/` and `.mooring/`, each open. The two trees are never replaced,
/// so their descriptors stay valid as long as the session.
#[derive(Debug)]
pub struct SessionDirectory {
    root: OwnedFd,
    scratch: OwnedFd,
    results: OwnedFd,
    host: OwnedFd,
    staging: OwnedFd,
}

impl SessionDirectory {
    /// Opens a session's directory that [`SessionDirectory::create`] made.
    ///
    /// # Errors
    ///
    /// [`TreeError::System`] where one of its directories is missing or is none.
    pub fn open(root: OwnedFd) -> Result<Self, TreeError> {
        let tree = |name: &str| {
            open::directory(&root, name).map_err(TreeError::system("open a session's directory"))
        };
        let scratch = tree(Mount::Scratch.name())?;
        let results = tree(Mount::Results.name())?;
        let host = tree(HOST)?;
        let staging = open::directory(&host, STAGING)
            .map_err(TreeError::system("open a session's staging"))?;
        Ok(Self {
            root,
            scratch,
            results,
            host,
            staging,
        })
    }

    /// Creates the missing parts of a session's directory, and opens it.
    ///
    /// # Errors
    ///
    /// [`TreeError::System`] where a directory cannot be made or opened.
    pub fn create(root: OwnedFd) -> Result<Self, TreeError> {
        make(root.as_fd(), HOST, Mode::RWXU)?;
        let host = open::directory(&root, HOST)
            .map_err(TreeError::system("open a session's directory"))?;
        make(host.as_fd(), STAGING, Mode::RWXU)?;
        for mount in Mount::ALL.into_iter().filter(|mount| mount.is_writable()) {
            make(root.as_fd(), mount.name(), Mode::from_raw_mode(0o755))?;
        }
        Self::open(root)
    }

    /// The directory above all of them.
    #[must_use]
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// `scratch/`.
    #[must_use]
    pub fn scratch(&self) -> BorrowedFd<'_> {
        self.scratch.as_fd()
    }

    /// `results/`.
    #[must_use]
    pub fn results(&self) -> BorrowedFd<'_> {
        self.results.as_fd()
    }

    /// `.mooring/`, for the host's data about the session. The names `journal.json`, `journal.json.tmp`, `turn.json`,
    /// `turn.json.tmp` and `staging` are reserved.
    #[must_use]
    pub fn host(&self) -> BorrowedFd<'_> {
        self.host.as_fd()
    }

    /// A new descriptor of `scratch/`, for [`SessionTrees`](crate::SessionTrees).
    ///
    /// # Errors
    ///
    /// [`TreeError::System`] where it cannot be opened.
    pub fn open_scratch(&self) -> Result<OwnedFd, TreeError> {
        open::directory(&self.scratch, ".").map_err(TreeError::system("open a session's directory"))
    }

    /// A fresh descriptor of `results/`.
    ///
    /// # Errors
    ///
    /// [`TreeError::System`] where it cannot be opened.
    pub fn open_results(&self) -> Result<OwnedFd, TreeError> {
        open::directory(&self.results, ".").map_err(TreeError::system("open a session's directory"))
    }

    /// Forgets the last turn that committed, so that the next one may have any number. Used when the directory is
    /// assigned to a new generation of the session, whose turns are counted from the start. The caller has the
    /// session's lock.
    ///
    /// # Errors
    ///
    /// [`TreeError::System`] where it cannot be dropped.
    pub fn forget_turn(&self) -> Result<(), TreeError> {
        journal::discard(self.host(), journal::TURN)
            .map_err(TreeError::system("forget the last turn"))
    }

    /// The directory of a tree that agents write to.
    pub(super) fn tree(&self, mount: Mount) -> Option<BorrowedFd<'_>> {
        match mount {
            Mount::Scratch => Some(self.scratch()),
            Mount::Results => Some(self.results()),
            Mount::Skills | Mount::Tools => None,
        }
    }

    /// Where files are prepared.
    pub(super) fn staging(&self) -> BorrowedFd<'_> {
        self.staging.as_fd()
    }
}

fn make(at: BorrowedFd<'_>, name: &str, mode: Mode) -> Result<(), TreeError> {
    match fs::mkdirat(at, name, mode) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(TreeError::system("make a session's directory")(errno)),
    }
}
