//! Upstream servers from the registries: fastmcp (Python) and server-everything (Node).

use std::process::Command;

use anyhow::Context;
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::paths;
use crate::port::free_port;
use crate::process::Process;

/// A running server of a third party that listens on `/mcp`.
#[derive(Debug)]
pub struct Server {
    process: Process,
    port: u16,
    _directory: TempDir,
}

impl Server {
    /// `tests/servers/counting.py` on fastmcp: `increment` and `whoami`, state per session.
    pub async fn python_counting(instance: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(paths::tool("python")?);
        command
            .arg(paths::test_file("servers/counting.py")?)
            .args(["--instance", instance]);
        Self::start(&format!("python {instance}"), command, |command, port| {
            command.args(["--port", &port.to_string()]);
        })
        .await
    }

    /// `@modelcontextprotocol/server-everything` over Streamable HTTP.
    pub async fn everything(instance: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(paths::tool("mcp-server-everything")?);
        command.arg("streamableHttp");
        Self::start(
            &format!("server-everything {instance}"),
            command,
            |command, port| {
                command.env("PORT", port.to_string());
            },
        )
        .await
    }

    async fn start(
        name: &str,
        mut command: Command,
        set_port: impl FnOnce(&mut Command, u16),
    ) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-server-").context("make a directory")?;
        let port = free_port()?;
        set_port(&mut command, port);
        let log = directory.path().join("server.log");
        let process = Process::start(name, &mut command, &log)?;
        let mut server = Self {
            process,
            port,
            _directory: directory,
        };
        let (client, url) = (HttpClient::default(), server.url());
        // Any answer will do: a GET without a session is refused, but by a server that is up.
        server
            .process
            .ready(async || client.get(&url).await.map(drop))
            .await?;
        Ok(server)
    }

    /// The process, to kill, stop or read the log of.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The MCP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}
