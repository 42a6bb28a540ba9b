//! A client of stdio: it starts a server and exchanges messages with it, a line each.
//!
//! Invariant: the server does not outlive this client.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::client::STEP_WITHIN;
use crate::duplex::{Connection, DuplexSession};
use crate::session::Opening;

/// A session over stdio.
pub type StdioSession = DuplexSession<StdioConnection>;

impl StdioSession {
    /// Starts `command` (the program, then its arguments) and initializes, with the default [`Opening`].
    pub async fn start(command: &[String]) -> anyhow::Result<Self> {
        Self::start_with(command, &Opening::default()).await
    }

    /// Starts `command` and initializes as `opening` says.
    pub async fn start_with(command: &[String], opening: &Opening) -> anyhow::Result<Self> {
        Self::open(StdioConnection::start(command)?, opening).await
    }
}

/// A running server, in its own directory.
#[derive(Debug)]
pub struct StdioConnection {
    child: Child,
    /// `None` once closed.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    directory: TempDir,
}

impl StdioConnection {
    /// Starts `command`: the program, then its arguments.
    pub fn start(command: &[String]) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("a program")?;
        let directory = TempDir::with_prefix("mooring-stdio-").context("make a directory")?;
        let log = std::fs::File::create(directory.path().join("stderr"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let input = child.stdin.take().context("a pipe to write to")?;
        let output = child.stdout.take().context("a pipe to read from")?;
        Ok(Self {
            child,
            input: Some(input),
            output: BufReader::new(output),
            directory,
        })
    }

    /// The server's process id, while it has not been waited for.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The file with the server's stderr.
    #[must_use]
    pub fn errors(&self) -> PathBuf {
        self.directory.path().join("stderr")
    }

    /// Sends these bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("standard input is closed")?;
        let writing = async {
            input.write_all(bytes).await?;
            input.flush().await
        };
        timeout(STEP_WITHIN, writing)
            .await
            .context("write in time")?
            .context("write")
    }

    /// Closes the server's stdin, which asks it to exit.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Waits until the server has ended.
    pub async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        timeout(STEP_WITHIN, self.child.wait())
            .await
            .context("end in time")?
            .context("wait for the server")
    }
}

impl Connection for StdioConnection {
    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.send_bytes(&line).await
    }

    async fn receive(&mut self) -> anyhow::Result<Option<Value>> {
        let mut line = String::new();
        let read = timeout(STEP_WITHIN, self.output.read_line(&mut line));
        if read.await.context("a line in time")?.context("read")? == 0 {
            return Ok(None);
        }
        ensure!(line.ends_with('\n'), "half a line: {line}");
        let message = serde_json::from_str(&line).with_context(|| format!("parse {line}"))?;
        Ok(Some(message))
    }
}
