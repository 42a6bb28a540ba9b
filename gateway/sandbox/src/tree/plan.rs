//! The steps of a commit, and the resulting usage.

use std::ffi::CStr;

use super::journal::{JOURNAL_BYTES_MAX, JournalStep};
use super::staging::new_name;
use super::usage::TreeUsage;
use crate::paths::{self, NameFault};
use crate::paths::{DEPTH_MAX, PATH_BYTES_MAX};

/// Most refused entries that are listed one by one; the others are counted.
const REFUSED_LISTED_MAX: usize = 100;

/// An entry that the commit refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEntry {
    /// Its path as agents see it, [escaped](super::escaped).
    pub path: String,
    /// Why.
    pub reason: RefusalReason,
}

/// Why an entry was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// A name that files of a session may not have.
    #[error("{0}")]
    Name(NameFault),
    /// More than 32 names.
    #[error("deeper than {DEPTH_MAX} directories")]
    TooDeep,
    /// A path that is too long.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    PathTooLong,
    /// Neither a regular file nor a directory.
    #[error("a {0}; only files and directories are kept")]
    Special(&'static str),
    /// A file over the limit.
    #[error("{size_bytes} bytes, over the limit file_bytes")]
    TooLarge {
        /// Its length.
        size_bytes: u64,
    },
    /// The policy of the server lets no file be written there.
    #[error("the server's policy does not allow to write this path")]
    Denied,
    /// The system would not let it be read.
    #[error("it could not be read")]
    Unreadable,
}

/// The steps of a commit, and their effect.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<JournalStep>,
    /// Usage of the new entries.
    pub(super) staged: TreeUsage,
    /// Usage of entries that are removed or overwritten.
    pub(super) removed: TreeUsage,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) deleted: u64,
    pub(super) refused: Vec<RefusedEntry>,
    pub(super) refused_total: u64,
    /// Whether a new file is as long as one may be.
    pub(super) is_file_limit_reached: bool,
    slots: u64,
    path_bytes: usize,
}

impl Plan {
    /// Whether it changes nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Whether its steps still fit into a journal, which bounds their memory.
    pub(super) const fn fits_journal(&self) -> bool {
        self.path_bytes <= JOURNAL_BYTES_MAX
    }

    fn slot(&mut self, path: &str) -> u64 {
        self.path_bytes = self.path_bytes.saturating_add(path.len());
        self.slots += 1;
        self.slots
    }

    /// Plans to remove the entry at a path.
    pub(super) fn remove(&mut self, path: String, held: TreeUsage) {
        let slot = self.slot(&path);
        self.removed = self.removed.plus(held);
        self.steps.push(JournalStep::Remove { path, slot });
    }

    /// Plans to put an entry at a path; returns the name under which to prepare it.
    pub(super) fn place(&mut self, path: String) -> String {
        let slot = self.slot(&path);
        self.steps.push(JournalStep::Place { path, slot });
        new_name(slot)
    }

    pub(super) fn refuse(&mut self, path: &Path, name: &CStr, reason: RefusalReason) {
        self.refused_total += 1;
        if self.refused.len() < REFUSED_LISTED_MAX {
            let path = format!("/{}/{}", path.text, paths::escaped(name.to_bytes()));
            self.refused.push(RefusedEntry { path, reason });
        }
    }
}

/// A path relative to the session's directory, such as `scratch/data`.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) text: String,
    /// Names beneath the mount.
    pub(super) depth: usize,
}

impl Path {
    pub(super) fn join(&self, name: &str) -> Self {
        Self {
            text: format!("{}/{name}", self.text),
            depth: self.depth + 1,
        }
    }
}
