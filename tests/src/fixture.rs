//! `mooring-fixture` as a process: an upstream server with known replies.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Context;
use serde::Deserialize;
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::journal::Journal;
use crate::paths;
use crate::port::free_port;
use crate::process::Process;

/// A running fixture.
#[derive(Debug)]
pub struct Fixture {
    process: Process,
    instance: String,
    port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

/// The fixture's counters since its start.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Stats {
    /// The instance's name.
    pub instance: String,
    /// `initialize` requests answered.
    pub initializes: u64,
    /// Sessions ended by DELETE.
    pub deletes: u64,
    /// Sessions open now, over either transport.
    pub sessions_live: usize,
    /// Calls begun, by tool.
    pub calls: BTreeMap<String, u64>,
}

impl Stats {
    /// Calls begun of one tool.
    #[must_use]
    pub fn calls_of(&self, tool: &str) -> u64 {
        self.calls.get(tool).copied().unwrap_or(0)
    }
}

/// The command that starts a fixture of this name on stdio, with these further arguments.
pub fn stdio_command(
    instance: &str,
    journal: Option<&Journal>,
    arguments: &[&str],
) -> anyhow::Result<Vec<String>> {
    let mut command = vec![paths::binary("mooring-fixture")?.display().to_string()];
    command.extend(["--stdio", "--instance", instance].map(str::to_owned));
    if let Some(journal) = journal {
        command.extend(["--journal".to_owned(), journal.path().display().to_string()]);
    }
    command.extend(arguments.iter().map(|&argument| argument.to_owned()));
    Ok(command)
}

impl Fixture {
    /// Starts an instance with this name.
    pub async fn start(instance: &str) -> anyhow::Result<Self> {
        Self::start_with(instance, &[]).await
    }

    /// Starts with further arguments, for instance `["--replies", "stateless-json"]`.
    pub async fn start_with(instance: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-fixture-").context("make a directory")?;
        let port = free_port()?;
        let all = arguments_of(port, instance, arguments);
        let process = spawn(instance, &all, &directory)?;
        let mut fixture = Self {
            process,
            instance: instance.to_owned(),
            port,
            arguments: all,
            directory,
        };
        fixture.ready().await?;
        Ok(fixture)
    }

    /// Kills the process if it runs, and starts it again on the same port: all its sessions are lost.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill_now()?;
        self.process = spawn(&self.instance, &self.arguments, &self.directory)?;
        self.ready().await
    }

    /// The same with other further arguments.
    pub async fn restart_with(&mut self, arguments: &[&str]) -> anyhow::Result<()> {
        self.arguments = arguments_of(self.port, &self.instance, arguments);
        self.restart().await
    }

    /// The process, to kill, stop or read the log of.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The name it was started with.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The MCP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The endpoint of HTTP+SSE of 2024-11-05.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// The counters of the instance.
    pub async fn stats(&self) -> anyhow::Result<Stats> {
        let url = format!("http://127.0.0.1:{}/stats", self.port);
        let stats = HttpClient::default().get(&url).await?.json().await?;
        serde_json::from_value(stats).context("read the figures")
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{}/stats", self.port);
        let client = HttpClient::default();
        self.process
            .ready(async || client.get(&url).await.map(drop))
            .await
    }
}

fn arguments_of(port: u16, instance: &str, more: &[&str]) -> Vec<String> {
    let port = port.to_string();
    let own = ["--port", &port, "--instance", instance];
    let all = own.into_iter().chain(more.iter().copied());
    all.map(str::to_owned).collect()
}

fn spawn(instance: &str, arguments: &[String], directory: &TempDir) -> anyhow::Result<Process> {
    let program = paths::binary("mooring-fixture")?;
    let log = directory.path().join("fixture.log");
    Process::start(
        &format!("fixture {instance}"),
        Command::new(program).args(arguments),
        &log,
    )
}
