//! Code that calls the tools of other servers: real servers, mounted together in a code server behind three gateways.

mod asking;
mod every_tool;
mod refused;
mod replay;
mod state;
mod tokens;

use std::path::PathBuf;
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, SERVER, USER};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::redis::Redis;
use mooring_tests::servers::{Server, filesystem_command, memory_command, shapes_command};
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keyed::{instances_table, keyed_settings, stdio_table};

/// Runs call real servers, each of which has to be started first.
const RUN_WITHIN: Duration = Duration::from_secs(90);

/// A code server, other servers, and three gateways in front of all.
struct Rig {
    gateways: Vec<Gateway>,
    volume: CodeVolume,
    _redis: Redis,
    _keys: FleetKeys,
}

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
        let (redis, keys, volume) = (Redis::start().await?, FleetKeys::new()?, CodeVolume::new()?);
        let code = format!("[[servers]]\nid = {SERVER:?}\nkind = \"code\"\n{of_code}\n");
        let settings = keyed_settings(&redis, &keys, &format!("{tables}\n{code}"))
            .env(
                "MOORING_CODE_BASE_DIR",
                &volume.path().display().to_string(),
            )
            .env("MOORING_CODE_DEFAULT_MAX_RUNS_PER_MINUTE", "1000")
            .env("MOORING_CODE_DEFAULT_MAX_EXECUTION_TIME_MS", "60000")
            .env(
                "MOORING_CODE_DENO_PATH",
                &paths::tool("deno")?.display().to_string(),
            )
            .env("MOORING_AUTH_MODE", "trusted-header")
            .env("MOORING_AUTH_TRUSTED_PEERS", "127.0.0.1");
        let gateways = Gateway::fleet(3, &change(settings)).await?;
        Ok(Self {
            gateways,
            volume,
            _redis: redis,
            _keys: keys,
        })
    }

    fn endpoints(&self, server: &str) -> Vec<String> {
        self.gateways.iter().map(|g| g.mcp_url(server)).collect()
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

/// Runs code: its structured answer.
async fn run(session: &mut McpSession, language: &str, code: &str) -> anyhow::Result<Value> {
    let arguments = json!({"language": language, "code": code});
    let result = session.call("shell_exec", arguments).await?;
    Ok(result["structuredContent"].clone())
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
