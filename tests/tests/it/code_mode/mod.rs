//! Code that calls the tools of other servers: real servers, mounted together in a code server behind three gateways.

mod answered;
mod asking;
mod every_tool;
mod refused;
mod replay;
mod state;
mod tokens;

use std::path::PathBuf;
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::code::{USER, whole_answer};
use mooring_tests::gateway::Settings;
use mooring_tests::servers::{Server, filesystem_command, memory_command, shapes_command};
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::governed_fleet::GovernedFleet;
use crate::keyed::{instances_table, stdio_table};

/// Runs call real servers, each of which has to be started first.
const RUN_WITHIN: Duration = Duration::from_secs(90);

/// A code server, other servers, and three gateways in front of all.
struct Rig(GovernedFleet);

impl Rig {
    /// `tables` is TOML of the other servers, `of_code` what the code server says besides its id and kind.
    async fn start(tables: &str, of_code: &str) -> anyhow::Result<Self> {
        Self::start_with(tables, of_code, |settings| settings).await
    }

    async fn start_with(
        tables: &str,
        of_code: &str,
        change: impl FnOnce(Settings) -> Settings,
    ) -> anyhow::Result<Self> {
        let patient = |settings: Settings| {
            settings.env("MOORING_CODE_DEFAULT_MAX_EXECUTION_TIME_MS", "60000")
        };
        let started = GovernedFleet::start(tables, of_code, |settings| change(patient(settings)));
        Ok(Self(started.await?))
    }

    fn endpoints(&self, server: &str) -> Vec<String> {
        self.0.gateways.iter().map(|g| g.mcp_url(server)).collect()
    }

    /// A user's client of a server, whose every request goes to another gateway, and which cannot be asked anything.
    async fn open(&self, server: &str, user: &str) -> anyhow::Result<McpSession> {
        let opening = Opening {
            capabilities: json!({}),
            ..Opening::default()
        };
        self.open_with(server, user, opening).await
    }

    async fn open_with(
        &self,
        server: &str,
        user: &str,
        opening: Opening,
    ) -> anyhow::Result<McpSession> {
        let client = HttpClient::new(RUN_WITHIN);
        let opening = opening.header(USER, user)?;
        McpSession::open_with(&client, &self.endpoints(server), opening).await
    }
}

/// Runs code: its whole answer.
async fn run(session: &mut McpSession, language: &str, code: &str) -> anyhow::Result<Value> {
    let arguments = json!({"language": language, "code": code});
    let result = session.call("shell_exec", arguments).await?;
    whole_answer(&result)
}

/// Runs code that has to succeed: what it printed.
async fn printed(session: &mut McpSession, language: &str, code: &str) -> anyhow::Result<String> {
    let answer = run(session, language, code).await?;
    anyhow::ensure!(answer["metrics"]["outcome"] == "completed", "{answer}");
    let output = answer["output"].as_str().unwrap_or_default();
    Ok(output.trim_end().to_owned())
}

/// Every server whose tools are mounted together.
struct Upstreams {
    tables: String,
    files: PathBuf,
    _servers: Vec<Server>,
    _directories: Vec<TempDir>,
}

impl Upstreams {
    async fn start() -> anyhow::Result<Self> {
        let (everything, counting, legacy) = tokio::try_join!(
            Server::everything("e"),
            Server::python_counting("c"),
            Server::everything_sse("l")
        )?;
        let files = TempDir::with_prefix("mooring-files-")?;
        let memory = TempDir::with_prefix("mooring-memory-")?;
        let root = files.path().canonicalize()?;
        let graph = memory.path().join("graph.json").display().to_string();
        let tables = [
            instances_table("everything", "http", &[everything.url()]),
            instances_table("counting", "http", &[counting.url()]),
            instances_table("legacy-sse", "sse", &[legacy.sse_url()]),
            stdio_table("files", &filesystem_command(&root)?),
            stdio_table("memory", &memory_command()?),
            format!("env = {{ MEMORY_FILE_PATH = {graph:?} }}\n"),
            stdio_table("shapes", &shapes_command()?),
        ];
        Ok(Self {
            tables: tables.concat(),
            files: root,
            _servers: vec![everything, counting, legacy],
            _directories: vec![files, memory],
        })
    }
}
