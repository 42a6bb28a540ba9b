//! A machine of its own on this one, with systemd as its first process and nothing of Mooring on it: packages are
//! installed there as an administrator does it, and what they leave can be listed.
//!
//! Invariant: nothing done there is seen here. It has namespaces of its own, a writable layer over this machine's files
//! (tests/tools/clean-machine.sh), a network without anybody else, and ends with this value.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::paths;
use crate::process::Process;
use crate::wait;

/// How long it may take until the first process answers.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// A running machine.
#[derive(Debug)]
pub struct CleanMachine {
    process: Process,
    directory: TempDir,
}

impl CleanMachine {
    /// Starts it.
    pub async fn start() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-machine-")?;
        let script = paths::test_file("tools/clean-machine.sh")?;
        let mut command = Command::new(script);
        command.arg(directory.path());
        let log = directory.path().join("log");
        let process = Process::start("clean machine", &mut command, &log)?;
        let machine = Self { process, directory };
        wait::until_true("systemd answers", STARTED_WITHIN, async || {
            Ok(machine.run("systemctl is-active clean.target").is_ok())
        })
        .await?;
        Ok(machine)
    }

    /// A directory of this machine that is `/run/shared` there.
    #[must_use]
    pub fn shared(&self) -> PathBuf {
        self.directory.path().join("shared")
    }

    /// What this script for bash prints there, as root, in `/run/shared`. A command that fails ends it with an error.
    pub fn run(&self, script: &str) -> anyhow::Result<String> {
        let parent = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let first = children.trim();
        ensure!(!first.is_empty(), "the machine has not started");
        let output = Command::new("nsenter")
            .args(["--target", first, "--all", "--root", "--wd"])
            .args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
            .args(["bash", "-euo", "pipefail", "-c"])
            .arg(format!("cd /run/shared\n{script}"))
            .output()
            .context("nsenter")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{}: {script}\n{printed}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(printed)
    }

    /// The files that were made or changed there, by path.
    pub fn changed_files(&self) -> anyhow::Result<Vec<String>> {
        let files = self.run("cd /run/changed && find . ! -type d -printf '/%P\\n' | sort")?;
        Ok(files.lines().map(str::to_owned).collect())
    }
}

impl Drop for CleanMachine {
    fn drop(&mut self) {
        // Its first process is killed with the one that made it.
        let _ = self.process.kill_now();
    }
}
