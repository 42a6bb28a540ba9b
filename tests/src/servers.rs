//! Upstream servers from the registries: fastmcp (Python), and the reference servers and Playwright (Node).
//!
//! Invariant: a server that writes files does so in its own temporary directory.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::paths;
use crate::port::free_port;
use crate::process::Process;

/// The browser that Playwright drives; `scripts/packages.sh chromium` puts it there.
const BROWSER: &str = "/usr/bin/chromium-headless-shell";

/// A running server of a third party.
#[derive(Debug)]
pub struct Server {
    process: Process,
    port: u16,
    directory: TempDir,
}

/// The command that starts `@modelcontextprotocol/server-filesystem` on stdio: files below `root`, which is all that
/// its sessions share.
pub fn filesystem_command(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(vec![
        tool("mcp-server-filesystem")?,
        root.display().to_string(),
    ])
}

/// The command that starts `@modelcontextprotocol/server-memory` on stdio. It keeps its graph in the file that the
/// environment variable `MEMORY_FILE_PATH` names.
pub fn memory_command() -> anyhow::Result<Vec<String>> {
    Ok(vec![tool("mcp-server-memory")?])
}

/// The command that starts `@modelcontextprotocol/server-everything` on stdio.
pub fn everything_command() -> anyhow::Result<Vec<String>> {
    Ok(vec![tool("mcp-server-everything")?, "stdio".to_owned()])
}

/// The command that starts server-memory 0.6.2 on stdio, which supports 2024-11-05 only. It stores its graph next to
/// its program, so nothing may be written to it.
pub fn older_memory_command() -> anyhow::Result<Vec<String>> {
    Ok(vec![tool("mcp-server-memory-0.6.2")?])
}

/// The command that starts server-everything 2025.1.14 on stdio, which speaks 2024-11-05 alone.
pub fn older_everything_command() -> anyhow::Result<Vec<String>> {
    Ok(vec![tool("mcp-server-everything-2025.1.14")?])
}

/// The command that starts `tests/servers/shapes.py` on stdio: tools with schemas of every shape, which return the
/// arguments that they received.
pub fn shapes_command() -> anyhow::Result<Vec<String>> {
    let program = paths::test_file("servers/shapes.py")?;
    Ok(vec![tool("python")?, program.display().to_string()])
}

/// The command that starts `@playwright/mcp` on stdio; it starts a browser when a page is requested. Its files go below
/// `output`.
pub fn playwright_command(output: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = vec![tool("playwright-mcp")?];
    command.extend(playwright_arguments(output));
    Ok(command)
}

/// `--isolated`: a profile in memory for each session. `--no-sandbox`: Chromium's sandbox does not work if the tests
/// run as root.
fn playwright_arguments(output: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = ["--headless", "--isolated", "--no-sandbox"]
        .map(str::to_owned)
        .into();
    arguments.extend(["--executable-path", BROWSER, "--output-dir"].map(str::to_owned));
    arguments.push(output.display().to_string());
    arguments
}

fn tool(name: &str) -> anyhow::Result<String> {
    Ok(paths::tool(name)?.display().to_string())
}

impl Server {
    /// `tests/servers/counting.py` on fastmcp, at [`Server::url`]: `increment` and `whoami`, state per session.
    pub async fn python_counting(instance: &str) -> anyhow::Result<Self> {
        Self::python_counting_over("http", instance).await
    }

    /// The same over HTTP+SSE of 2024-11-05, at [`Server::sse_url`].
    pub async fn python_counting_sse(instance: &str) -> anyhow::Result<Self> {
        Self::python_counting_over("sse", instance).await
    }

    async fn python_counting_over(transport: &str, instance: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(paths::tool("python")?);
        command.arg(paths::test_file("servers/counting.py")?).args([
            "--instance",
            instance,
            "--transport",
            transport,
        ]);
        Self::start(
            &format!("python {instance}"),
            command,
            |command, port, _| {
                command.args(["--port", &port.to_string()]);
            },
        )
        .await
    }

    /// `tests/servers/verifying.py` on fastmcp, at [`Server::url`]: it admits only requests with a token that a gateway has
    /// signed. `keys` will
    /// have the URL of the gateway's keys, and each request becomes a line of `journal`.
    pub async fn verifying(keys: &Path, journal: &Path) -> anyhow::Result<Self> {
        Self::verifying_tokens_of(keys, journal, &[]).await
    }

    /// The same for another issuer, which `arguments` describe.
    pub async fn verifying_tokens_of(
        keys: &Path,
        journal: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(paths::tool("python")?);
        command
            .arg(paths::test_file("servers/verifying.py")?)
            .arg("--keys")
            .arg(keys)
            .arg("--journal")
            .arg(journal)
            .args(arguments);
        Self::start("verifying", command, |command, port, _| {
            command.args(["--port", &port.to_string()]);
        })
        .await
    }

    /// `@modelcontextprotocol/server-everything` over Streamable HTTP, at [`Server::url`].
    pub async fn everything(instance: &str) -> anyhow::Result<Self> {
        Self::everything_over("streamableHttp", instance).await
    }

    /// `@modelcontextprotocol/server-everything` over HTTP+SSE of 2024-11-05, at [`Server::sse_url`].
    pub async fn everything_sse(instance: &str) -> anyhow::Result<Self> {
        Self::everything_over("sse", instance).await
    }

    /// server-everything 2025.1.14 over HTTP+SSE, at [`Server::sse_url`]. It speaks 2024-11-05 alone, to one client.
    pub async fn older_everything_sse() -> anyhow::Result<Self> {
        let command = Command::new(paths::tool("mcp-server-everything-2025.1.14-sse")?);
        Self::start(
            "server-everything 2025.1.14",
            command,
            |command, port, _| {
                command.env("PORT", port.to_string());
            },
        )
        .await
    }

    async fn everything_over(transport: &str, instance: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(paths::tool("mcp-server-everything")?);
        command.arg(transport);
        let name = format!("server-everything {instance}");
        Self::start(&name, command, |command, port, _| {
            command.env("PORT", port.to_string());
        })
        .await
    }

    /// `@playwright/mcp`, at both [`Server::url`] and [`Server::sse_url`], whatever name a client calls it by.
    pub async fn playwright(instance: &str) -> anyhow::Result<Self> {
        let command = Command::new(paths::tool("playwright-mcp")?);
        let name = format!("playwright {instance}");
        Self::start(&name, command, |command, port, directory| {
            command
                .args(["--host", "127.0.0.1", "--port", &port.to_string()])
                .args(["--allowed-hosts", "*"])
                .args(playwright_arguments(directory));
        })
        .await
    }

    async fn start(
        name: &str,
        mut command: Command,
        set_place: impl FnOnce(&mut Command, u16, &Path),
    ) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-server-").context("make a directory")?;
        let port = free_port()?;
        set_place(&mut command, port, directory.path());
        command.current_dir(directory.path());
        let log = directory.path().join("server.log");
        let process = Process::start(name, &mut command, &log)?;
        let mut server = Self {
            process,
            port,
            directory,
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

    /// The MCP endpoint over Streamable HTTP.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The MCP endpoint over HTTP+SSE of 2024-11-05.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// The working directory of the server.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
