//! A reader who follows a page: a home directory, `mooring` and what else the page needs in the PATH, and the variables
//! that the page has said to set.
//!
//! Invariant: the environment of the test run does not reach the reader's commands, and they write to this home only.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::paths;
use crate::process::Process;
use crate::stdio_client::StdioClient;

/// How long the commands of one block may take on a busy machine.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// One reader.
#[derive(Debug)]
pub struct Reader {
    home: TempDir,
    variables: Vec<(String, String)>,
}

impl Reader {
    /// One who has done nothing yet.
    pub fn new() -> anyhow::Result<Self> {
        let home = TempDir::with_prefix("mooring-reader-").context("make a home")?;
        std::fs::create_dir(home.path().join("bin"))?;
        Ok(Self {
            home,
            variables: Vec::new(),
        })
    }

    /// A file or directory of the home, in which commands run.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The same as text.
    #[must_use]
    pub fn path_text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Sets a variable of the environment.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.into()));
    }

    /// Writes a file that only the reader may read. `name` is its path below the home.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().context("its directory")?)?;
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    /// Puts a program into the PATH under this name.
    pub fn install(&self, name: &str, program: &Path) -> anyhow::Result<()> {
        let program = format!("exec {} \"$@\"", program.display());
        self.install_script(name, &program)
    }

    /// The same for a shell script.
    pub fn install_script(&self, name: &str, script: &str) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Runs commands to their end: their standard output.
    ///
    /// # Errors
    /// One of them failed.
    pub async fn run(&self, script: &str) -> anyhow::Result<String> {
        let mut command = Command::from(self.command(&format!("set -eu -o pipefail\n{script}"))?);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(ENDED_WITHIN, command.output()).await;
        let output = output.with_context(|| format!("{script}: not ended"))??;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{script}: {}: {}\n{printed}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(printed)
    }

    /// Starts one command that runs until it is stopped.
    pub fn start(&self, command: &str) -> anyhow::Result<Process> {
        let mut started = self.command(&format!("exec {}", command.trim()))?;
        Process::start(command.trim(), &mut started, &self.path("started.log"))
    }

    /// Starts one command that speaks MCP on its standard input and output, and initializes.
    pub async fn open(&self, command: &str) -> anyhow::Result<StdioClient> {
        let started = self.command(&format!("exec {}", command.trim()))?;
        let client = StdioClient::open_program(started.into()).await;
        client.with_context(|| command.to_owned())
    }

    fn command(&self, script: &str) -> anyhow::Result<std::process::Command> {
        let binaries = paths::binary("mooring")?;
        let binaries = binaries.parent().context("a directory of binaries")?;
        let others = std::env::var("PATH").unwrap_or_default();
        let own = self.path_text("bin");
        let mut command = std::process::Command::new("/bin/bash");
        command
            .args(["-c", script])
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", format!("{own}:{}:{others}", binaries.display()))
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}
