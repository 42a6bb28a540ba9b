//! Commands that guides print, run as a reader would: in a shell, in the order of the page, with the real `mooring`. Programs
//! that need a cluster or a container engine are stand-ins, which write down how they were called.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use mooring_tests::paths;
use tempfile::TempDir;

/// A directory that stands for the reader's clone, and the programs of the reader's PATH.
#[derive(Debug)]
pub(crate) struct Console {
    directory: TempDir,
}

impl Console {
    /// With the chart and the container files of this repository.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-console-")?;
        let programs = directory.path().join("programs");
        std::fs::create_dir(&programs)?;
        for name in ["charts", "deploy"] {
            let target = paths::workspace().join(name);
            std::os::unix::fs::symlink(target, directory.path().join(name))?;
        }
        std::os::unix::fs::symlink(paths::binary("mooring")?, programs.join("mooring"))?;
        Ok(Self { directory })
    }

    /// Where the commands run.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a program into the PATH: a shell script that gets the arguments.
    pub(crate) fn program(&self, name: &str, script: &str) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let file = self.path().join("programs").join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
        Ok(std::fs::set_permissions(
            &file,
            std::fs::Permissions::from_mode(0o755),
        )?)
    }

    /// Puts programs into the PATH that only write their arguments to the file `called`, one call a line.
    pub(crate) fn stand_ins(&self, names: &[&str]) -> anyhow::Result<()> {
        let called = self.path().join("called");
        for name in names {
            let script = format!("echo {name} \"$@\" >> {}", called.display());
            self.program(name, &script)?;
        }
        Ok(())
    }

    /// The calls of the stand-ins.
    pub(crate) fn called(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.path().join("called"))?)
    }

    /// Runs commands, the first failure of which is an error, and returns what they print.
    pub(crate) fn run(&self, script: &str, environment: &[(&str, &str)]) -> anyhow::Result<String> {
        let programs = self.path().join("programs").display().to_string();
        let path = std::env::var("PATH").context("a PATH")?;
        let output = Command::new("sh")
            .args(["-eu", "-c", script])
            .current_dir(self.path())
            .env_clear()
            .env("PATH", format!("{programs}:{path}"))
            .env("HOME", self.path())
            .envs(environment.iter().copied())
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{script}\n{printed}{errors}");
        Ok(printed)
    }
}
