//! A wall clock that a test sets, for processes that are started with it. Their monotonic clock is left alone.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::paths;

/// The clock. It has to outlive the processes.
#[derive(Debug)]
pub struct WallClock {
    directory: TempDir,
}

impl WallClock {
    /// A clock that is right until it is set.
    pub fn new() -> anyhow::Result<Self> {
        let clock = Self {
            directory: TempDir::with_prefix("mooring-clock-").context("make a directory")?,
        };
        clock.set(0)?;
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(clock.library())
            .arg(paths::test_file("src/wall_clock.c")?)
            .status()
            .context("run cc")?;
        ensure!(built.success(), "cc: {built}");
        Ok(clock)
    }

    /// By how much the clock is ahead from now on.
    pub fn set(&self, ahead_ms: i64) -> anyhow::Result<()> {
        use std::io::Write as _;
        // Written in place: the processes have the file mapped.
        let mut file = std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.file())?;
        Ok(file.write_all(&ahead_ms.to_ne_bytes())?)
    }

    /// The environment of a process that has this clock.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library().display().to_string()),
            ("TEST_CLOCK", self.file().display().to_string()),
        ]
    }

    /// The words of a command that starts the program behind them with this clock.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let variables = self.environment();
        let variables = variables.map(|(name, value)| format!("{name}={value}"));
        ["env".to_owned()].into_iter().chain(variables).collect()
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("wall_clock.so")
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("ahead_ms")
    }
}
