//! The steps of a commit, written to disk before any of them is performed.
//!
//! Invariant: `journal.json` appears complete, by a rename, and that is the moment of the commit: without it the old
//! tree is valid, with it the new one, whichever process completes it. Each step is idempotent: an entry that it
//! removes is kept under its own number until the journal is deleted, and a new entry is moved into place, so that a
//! step can tell whether it was performed before.
//!
//! This protects against the death of any process. Against a crash of the machine it protects as far as the file system
//! preserves the order of renames: sessions are short-lived, so calls do not pay for flushes.

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
    /// The directory within the session's staging that contains the prepared files.
    pub(super) staging: String,
    /// In the order in which they are done.
    pub(super) steps: Vec<JournalStep>,
    /// The turn that is recorded once they are.
    pub(super) turn: Option<u64>,
}

/// One change. Paths are relative to the session's directory, and their parents exist before and after the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalStep {
    /// Moves the entry at the path away, to this number of the old ones.
    Remove { path: String, slot: u64 },
    /// Moves this number of the new ones to the path, where there is nothing or a file.
    Place { path: String, slot: u64 },
}

/// The last turn that was committed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LastTurn {
    version: u32,
    pub(super) turn: u64,
}

impl Journal {
    pub(super) fn new(staging: String, steps: Vec<JournalStep>, turn: Option<u64>) -> Self {
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

/// Writes a value to a temporary file, which [`settle`] moves into place.
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

/// Reads a value; none if the file does not exist.
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

/// Deletes a value. The file need not exist.
pub(super) fn discard(host: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match fs::unlinkat(host, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Deletes a value that [`prepare`] wrote and that was not moved into place.
pub(super) fn discard_prepared(host: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    discard(host, &temporary(name))
}

fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}
