//! Other processes: the test binary started again, for one ignored test that does what its role is.
//!
//! The child says a line when it is where it was told to go, and then waits for its standard input to close.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where the volume is.
const BASE: &str = "MOORING_TEST_BASE";
/// What a child's own lines begin with, among those of the test harness.
const MARK: &str = "@ ";

/// Another process; killed when it is dropped.
pub(crate) struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts the ignored test of this path on this volume.
    pub(crate) fn start(test: &str, base: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                test,
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(BASE, base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.output.read_line(&mut line).unwrap();
            assert_ne!(count, 0, "the other process ended");
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Kills it at once, as an operator's `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the child: where the volume is.
pub(crate) fn base() -> PathBuf {
    std::env::var_os(BASE).unwrap().into()
}

/// In the child: says a line.
pub(crate) fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{MARK}{text}").unwrap();
    output.flush().unwrap();
}

/// In the child: waits until it is killed, or its parent is gone.
pub(crate) fn wait() {
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
}
