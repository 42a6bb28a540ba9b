//! The second process of the volume's probe: it tries to take a lock that the first one holds, and says what it found.
//!
//! It is the gateway's own binary, started again under another name; under that name it does nothing else.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::lock::FileLock;

/// The name by which the second process knows what it is.
const NAME: &str = "mooring-volume-probe";
/// The environment variable that names the file whose lock it tries.
const FILE_VARIABLE: &str = "MOORING_VOLUME_PROBE_FILE";
/// Its exit code if the lock is taken.
const LOCKED: u8 = 10;
/// Its exit code where it took the lock.
const FREE: u8 = 11;
/// Its exit code where it could not try.
const FAILED: u8 = 12;
/// Longest wait for it. A file system that hangs must not hang the gateway's start.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// The pause between two looks whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// How to start the second process.
#[derive(Clone, Debug)]
pub struct SecondProcess {
    /// The program.
    pub program: PathBuf,
    /// Its arguments: none for the gateway's own binary.
    pub arguments: Vec<OsString>,
}

impl Default for SecondProcess {
    fn default() -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            arguments: Vec::new(),
        }
    }
}

/// The result of the second process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The lock is taken.
    Locked,
    /// The lock was free.
    Free,
}

impl SecondProcess {
    /// Starts it and waits for what it says.
    pub(super) fn ask(&self, file: &Path) -> Result<Finding, &'static str> {
        let child = Command::new(&self.program)
            .arg0(NAME)
            .args(&self.arguments)
            .env_clear()
            .env(FILE_VARIABLE, file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| "it could not be started")?;
        match wait(child)?.code().map(u8::try_from) {
            Some(Ok(LOCKED)) => Ok(Finding::Locked),
            Some(Ok(FREE)) => Ok(Finding::Free),
            Some(Ok(FAILED)) => Err("it could not lock the file"),
            _ => Err("it ended without saying what it found"),
        }
    }
}

fn wait(mut child: Child) -> Result<ExitStatus, &'static str> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if started.elapsed() < ANSWERS_WITHIN => thread::sleep(PAUSE),
            Ok(None) => {
                // A process that hangs in the file system may not even die: it is not waited for again.
                let _ = child.kill();
                return Err("it did not end in time");
            }
            Err(_) => return Err("it could not be waited for"),
        }
    }
}

/// Whether this process was started as the second one. To be asked before anything else.
#[must_use]
pub fn is_second_process() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// All that the second process does.
#[must_use]
pub fn second_process() -> ExitCode {
    ExitCode::from(look())
}

/// Tries the lock, and says what was found as an exit code.
pub(super) fn look() -> u8 {
    let found = std::env::var_os(FILE_VARIABLE)
        .ok_or(std::io::ErrorKind::NotFound.into())
        .and_then(|path| {
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
        })
        .and_then(|file| Ok(FileLock::take(file.into(), Duration::ZERO)?.is_some()));
    match found {
        Ok(true) => FREE,
        Ok(false) => LOCKED,
        Err(_) => FAILED,
    }
}
