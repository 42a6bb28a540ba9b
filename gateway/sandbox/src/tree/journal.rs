//! What a commit is about to do, written down before it does any of it.
//!
//! Invariant: `journal.json` appears whole, by a rename, and that is the moment of the commit: without it the old tree
//! stands, with it the new one, whoever finishes it. Each step can be done again after it was done: what it takes away
//! is kept under a number of its own until the journal is gone, and what it puts in place is moved there, so that a
//! step finds out by itself that it was done before.
//!
//! This holds against the death of any process. Against the death of the machine it holds as far as the filesystem
//! keeps the order of renames: sessions are short-lived, and the price of a flush in each call is not paid for them.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::open;

/// The journal's name in the host's directory of a session.
pub(super) const JOURNAL: &str = "journal.json";

/// The name of the last turn that was committed.
pub(super) const TURN: &str = "turn.json";

/// Longest journal. A commit that needs a longer one is refused before it changes anything.
pub(super) const JOURNAL_BYTES_MAX: usize = 64 * 1024 * 1024;

const VERSION: u32 = 1;

/// One commit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    version: u32,
    /// The directory within the session's staging that holds the prepared files.
    pub(super) staging: String,
    /// In the order in which they are done.
    pub(super) steps: Vec<Step>,
    /// The turn that is recorded once they are.
    pub(super) turn: Option<u64>,
}

/// One change. Paths are relative to the session's directory, and their parents exist before and after the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Takes what stands at the path away, to this number among the old ones.
    Remove { path: String, slot: u64 },
    /// Puts this number of the new ones at the path, where nothing or a file stands.
    Place { path: String, slot: u64 },
}

/// The last turn that was committed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LastTurn {
    version: u32,
    pub(super) turn: u64,
}

impl Journal {
    pub(super) fn new(staging: String, steps: Vec<Step>, turn: Option<u64>) -> Self {
        Self {
            version: VERSION,
            staging,
            steps,
            turn,
        }
    }

    /// Whether this version can read it.
    pub(super) fn is_known(&self) -> bool {
        self.version == VERSION
    }
}

impl LastTurn {
    pub(super) fn new(turn: u64) -> Self {
        Self {
            version: VERSION,
            turn,
        }
    }
}

/// Writes a value beside its place; [`settle`] then moves it there.
pub(super) fn prepare<T: Serialize>(host: BorrowedFd<'_>, name: &str, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    if text.len() > JOURNAL_BYTES_MAX {
        return Err(Errno::FBIG.into());
    }
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = fs::openat(host, temporary(name), flags, Mode::RUSR | Mode::WUSR)?;
    File::from(opened).write_all(&text)
}

/// Moves what [`prepare`] wrote into its place, in one step.
pub(super) fn settle(host: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    Ok(fs::renameat(host, temporary(name), host, name)?)
}

/// Reads a value, or nothing where there is none.
pub(super) fn load<T: DeserializeOwned>(host: BorrowedFd<'_>, name: &str) -> io::Result<Option<T>> {
    let held = match open::hold(host, name) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let mut text = Vec::new();
    File::from(open::reopen(&held)?)
        .take(JOURNAL_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Whether what [`load`] read ends too early: the machine died before its bytes were on the disk.
pub(super) fn is_cut_off(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// Drops a value. None being there is fine.
pub(super) fn discard(host: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match fs::unlinkat(host, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Drops what [`prepare`] wrote and nobody moved.
pub(super) fn discard_prepared(host: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    discard(host, &temporary(name))
}

fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}
