//! The key file of a test's fleet.
//!
//! Invariant: only the test's user may read it, otherwise gateways refuse it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context;
use tempfile::TempDir;

/// A file with one key, in a temporary directory that has to outlive the gateways.
#[derive(Debug)]
pub struct FleetKeys {
    directory: TempDir,
}

impl FleetKeys {
    /// A file with a key that is the same in every test: it guards nothing.
    pub fn new() -> anyhow::Result<Self> {
        Self::of('5')
    }

    /// A file with the key that has no digit but this.
    pub fn of(digit: char) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-keys-").context("make a directory")?;
        let keys = Self { directory };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(keys.path())
            .context("make the key file")?;
        writeln!(file, "{}", digit.to_string().repeat(64)).context("write the key")?;
        Ok(keys)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("fleet.keys")
    }

    /// The line of `[worker]` that names the file.
    #[must_use]
    pub fn toml(&self) -> String {
        format!(
            "fleet_keys_file = {:?}\n",
            self.path().display().to_string()
        )
    }
}
