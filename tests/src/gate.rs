//! A gate that calls of the fixture wait for, so that a call lasts until its test opens it.
//!
//! Invariant: a gate that is dropped without [`Gate::open`] stays closed; the fixture's own limit ends the call then.

use std::path::PathBuf;

use anyhow::Context;
use tempfile::TempDir;

/// A file that is absent until the gate is opened.
#[derive(Debug)]
pub struct Gate {
    directory: TempDir,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-gate-").context("make a directory")?;
        Ok(Self { directory })
    }

    /// The file, as the argument `until` of the tools `slow` and `slow_increment`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("open")
    }

    /// Lets the calls that wait for it end.
    pub fn open(&self) -> anyhow::Result<()> {
        std::fs::write(self.path(), "").context("open the gate")
    }
}
