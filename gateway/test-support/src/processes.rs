//! Tests with several processes: the test binary is started again, for one ignored test that does what its role is.
//!
//! The child prints lines among those of the test harness, and reads lines until its parent is gone. Invariant: it is
//! killed when its handle is dropped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by failing"
)]

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// For whatever has to happen some time.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(5);

/// What the child is to do.
const ROLE: &str = "MOORING_TEST_ROLE";
/// Where it is to do it.
const PLACE: &str = "MOORING_TEST_PLACE";
/// What its own lines begin with, among those of the test harness.
const MARK: &str = "@ ";

/// The arguments that make the test binary run the ignored test of this path.
pub fn arguments(test: &str) -> Vec<OsString> {
    [
        "--exact",
        test,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(OsString::from)
    .to_vec()
}

/// Another process; killed when it is dropped.
#[derive(Debug)]
pub struct TestProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl TestProcess {
    /// Starts the ignored test of this path at this place.
    pub fn start(test: &str, place: &Path) -> Self {
        Self::in_role(test, "", place)
    }

    /// Starts one that has several roles, in this one.
    pub fn in_role(test: &str, role: &str, place: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments(test))
            .env(ROLE, role)
            .env(PLACE, place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The next line that it says; it has to say one.
    pub fn hear(&mut self) -> String {
        self.hear_if_any().expect("the other process ended")
    }

    /// The next line that it says; none when it has ended. A line that it was killed in is none.
    pub fn hear_if_any(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return None;
            }
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return Some(said.to_owned());
            }
        }
    }

    /// Tells it something.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// Kills it at once, as an operator's `kill -9` does. Its earlier output can still be read.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the child: what it is to do.
pub fn role() -> String {
    std::env::var(ROLE).unwrap()
}

/// In the child: where it is to do it.
pub fn place() -> PathBuf {
    std::env::var_os(PLACE).unwrap().into()
}

/// In the child: says a line.
pub fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{MARK}{text}").unwrap();
    output.flush().unwrap();
}

/// In the child: the next line from its parent; none when the parent is gone.
pub fn heard() -> Option<String> {
    let mut line = String::new();
    let count = std::io::stdin().lock().read_line(&mut line).unwrap();
    (count > 0).then(|| line.trim_end().to_owned())
}

/// Whether a process exists and has not ended. A zombie has ended.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let (_, rest) = stat.rsplit_once(')').unwrap();
    !rest.trim_start().starts_with(['Z', 'X'])
}

/// Waits until all of them have ended, for [`PATIENCE`] at most.
pub async fn until_dead(pids: &[i32]) {
    let started = Instant::now();
    for &pid in pids {
        while is_alive(pid) {
            assert!(started.elapsed() < PATIENCE, "{pid} is still alive");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Sends a signal to a process that the test started.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
