//! Clients of `mooring stdio`: each starts its own process and uses its stdin and stdout.
//!
//! Invariant: a process that is started here is gone when its client is dropped.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::gateway::Settings;
use crate::session::{Opening, result_of};

/// How long one answer, or the end of a process, may take on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);

/// One client and its process.
#[derive(Debug)]
pub struct StdioClient {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    last_id: u64,
    /// What came before the answer that was waited for.
    notifications: Vec<Value>,
    directory: TempDir,
}

impl StdioClient {
    /// Starts `mooring stdio --server SERVER` and no more. `more` is further words of the command line.
    pub fn start(settings: &Settings, server: &str, more: &[&str]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-stdio-").context("make a directory")?;
        let mut command = settings.command("stdio", directory.path())?;
        command.args(["--server", server]).args(more);
        Self::spawn(command.into(), directory)
    }

    fn spawn(mut command: Command, directory: TempDir) -> anyhow::Result<Self> {
        let log = std::fs::File::create(directory.path().join("log"))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the server")?;
        let output = child.stdout.take().context("its standard output")?;
        Ok(Self {
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
            last_id: 0,
            notifications: Vec::new(),
            directory,
        })
    }

    /// Starts it and initializes.
    pub async fn open(settings: &Settings, server: &str, more: &[&str]) -> anyhow::Result<Self> {
        let mut client = Self::start(settings, server, more)?;
        client.initialize().await?;
        Ok(client)
    }

    /// Starts another server that speaks MCP on its standard input and output, and initializes.
    pub async fn open_program(command: Command) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-stdio-").context("make a directory")?;
        let mut client = Self::spawn(command, directory)?;
        client.initialize().await?;
        Ok(client)
    }

    /// Initializes; the server's answer.
    pub async fn initialize(&mut self) -> anyhow::Result<Value> {
        let params = Opening::default().initialize_params();
        let answer = self.request("initialize", params).await?;
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        Ok(answer)
    }

    /// The result of a request.
    pub async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        let id = self.send(method, params).await?;
        self.answer(id).await
    }

    /// Sends a request whose response may be read later.
    pub async fn send(&mut self, method: &str, params: Value) -> anyhow::Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        Ok(id)
    }

    /// The result of the request of this id, which is the next that is answered.
    pub async fn answer(&mut self, id: u64) -> anyhow::Result<Value> {
        loop {
            let message = self.read().await?.context("its output is at its end")?;
            if message.get("method").is_some() {
                self.notifications.push(message);
                continue;
            }
            ensure!(
                message.get("id") == Some(&json!(id)),
                "another answer: {message}"
            );
            return result_of(message);
        }
    }

    /// The result of a tool's call.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// The structured content of a tool's call, which has to succeed.
    pub async fn ask(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let result = self.call(tool, arguments).await?;
        ensure!(
            result.get("isError") != Some(&json!(true)),
            "{tool} failed: {result}"
        );
        Ok(result.get("structuredContent").cloned().unwrap_or_default())
    }

    /// The messages received before responses so far.
    #[must_use]
    pub fn notifications(&self) -> &[Value] {
        &self.notifications
    }

    /// Writes one message.
    pub async fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        self.write_text(&format!("{message}\n")).await
    }

    /// Writes bytes as they are.
    pub async fn write_text(&mut self, text: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        input.write_all(text.as_bytes()).await?;
        Ok(input.flush().await?)
    }

    /// The next message; none at the end.
    pub async fn read(&mut self) -> anyhow::Result<Option<Value>> {
        let line = timeout(WITHIN, self.output.next_line()).await;
        match line.context("no message came")?? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }

    /// Closes its input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes its input and waits for its end, which has to be a clean one.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.close_input();
        while self.read().await?.is_some() {}
        let status = self.ended().await?;
        ensure!(status.success(), "{status}: {}", self.log_text());
        Ok(())
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let ended = timeout(WITHIN, self.child.wait()).await;
        Ok(ended.context("it does not end")??)
    }

    /// Kills it, by SIGKILL.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// The id of its process.
    pub fn process_id(&self) -> anyhow::Result<u32> {
        self.child.id().context("it has ended")
    }

    /// Its stderr.
    #[must_use]
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The directory of its own files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Starts it with invalid settings or flags: its exit status and its output.
pub async fn refused(
    settings: &Settings,
    server: &str,
    more: &[&str],
) -> anyhow::Result<(ExitStatus, String)> {
    let mut client = StdioClient::start(settings, server, more)?;
    let status = client.ended().await?;
    if status.success() {
        bail!("it was not refused");
    }
    Ok((status, client.log_text()))
}
