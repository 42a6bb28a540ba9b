//! A server's list on the volume: `base/.catalog/<server>.json`, beside the lock held while it is queried again.
//!
//! Invariant: a list is written under another name and renamed, so that half of one is never read.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::listed_tool::ListedTool;

/// The directory of all lists.
const DIRECTORY: &str = ".catalog";

/// A server's tools at one point in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ListSnapshot {
    /// In milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) tools: Vec<ListedTool>,
}

/// Where the list of one server is.
#[derive(Clone, Debug)]
pub(super) struct ListFile {
    path: PathBuf,
    lock: PathBuf,
}

/// The right to query the server, held by one caller of the whole fleet at a time. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct ListQueryLock {
    _lock: File,
}

impl ListFile {
    pub(super) fn new(base_dir: &Path, server: &str) -> Self {
        let directory = base_dir.join(DIRECTORY);
        Self {
            path: directory.join(format!("{server}.json")),
            lock: directory.join(format!("{server}.lock")),
        }
    }

    /// The list. None if there is no list, or this version does not understand it.
    pub(super) fn read(&self) -> Option<ListSnapshot> {
        serde_json::from_slice(&fs::read(&self.path).ok()?).ok()
    }

    /// Takes the query lock without waiting. `None` if another gateway holds it.
    pub(super) fn ask(&self) -> io::Result<Option<ListQueryLock>> {
        if let Some(directory) = self.lock.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        let lock = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.lock)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(ListQueryLock { _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Replaces the stored list. The query lock makes the caller the only writer.
    pub(super) fn write(&self, _asking: &ListQueryLock, listed: &ListSnapshot) -> io::Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, serde_json::to_vec(listed)?)?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn one_asks_and_all_read() {
        let base = tempfile::tempdir().unwrap();
        let file = ListFile::new(base.path(), "tools");
        assert_eq!(file.read(), None);
        let asking = file.ask().unwrap().unwrap();
        assert!(file.ask().unwrap().is_none(), "another one asks");
        let listed = ListSnapshot {
            at_ms: 7,
            tools: Vec::new(),
        };
        file.write(&asking, &listed).unwrap();
        drop(asking);
        assert!(file.ask().unwrap().is_some());
        assert_eq!(ListFile::new(base.path(), "tools").read(), Some(listed));
        fs::write(&file.path, "{").unwrap();
        assert_eq!(file.read(), None);
    }
}
