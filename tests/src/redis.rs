//! A Redis server of a test's own, with or without the module, that keeps its data over a restart.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::paths;
use crate::port::free_port;
use crate::process::Process;

/// Whether the server has the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// `libmooring.so` of this build is loaded.
    Loaded,
    /// A stock Redis.
    Absent,
}

/// A running `redis-server`.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Redis {
    /// Starts a server with the module, append-only file on.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Module::Loaded, &[]).await
    }

    /// Starts a server with further arguments as its command line takes them, for instance
    /// `["--appendonly", "no"]`; they follow the harness's own and win over them.
    pub async fn start_with(module: Module, arguments: &[&str]) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-redis-").context("make a directory")?;
        let port = free_port()?;
        let own = [
            ("--port", port.to_string()),
            ("--bind", "127.0.0.1".to_owned()),
            ("--dir", directory.path().display().to_string()),
            ("--save", String::new()),
            ("--appendonly", "yes".to_owned()),
            ("--enable-debug-command", "yes".to_owned()),
            ("--enable-module-command", "yes".to_owned()),
        ];
        let mut all: Vec<String> = own
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        if module == Module::Loaded {
            all.extend([
                "--loadmodule".to_owned(),
                paths::redis_module()?.display().to_string(),
            ]);
        }
        let process = spawn(&all, &directory)?;
        let mut redis = Self {
            process,
            port,
            arguments: all,
            directory,
        };
        redis.ready().await?;
        Ok(redis)
    }

    /// Starts again on the same port and directory after [`Redis::stop_server`] or a kill.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill_now()?;
        self.process = spawn(&self.arguments, &self.directory)?;
        self.ready().await
    }

    /// SIGTERM: Redis saves what it has to and closes its connections.
    pub async fn stop_server(&mut self) -> anyhow::Result<()> {
        self.process.terminate().await.map(|_| ())
    }

    /// The process, to kill, stop or read the log of.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs one command by `redis-cli`; its output as text. An error reply is an error here.
    pub fn cli(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("redis-cli")
            .args(["-e", "-p", &self.port.to_string()])
            .args(arguments)
            .output()
            .context("run redis-cli")?;
        let text = String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "redis-cli {arguments:?}: {text}{errors}"
        );
        Ok(text)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let port = self.port;
        self.process.ready(async || pong(port).await).await
    }
}

fn spawn(arguments: &[String], directory: &TempDir) -> anyhow::Result<Process> {
    let log: PathBuf = directory.path().join("redis.log");
    Process::start(
        "redis-server",
        Command::new("redis-server").args(arguments),
        &log,
    )
}

/// Fails while the server does not answer, or answers that it is still loading its data.
async fn pong(port: u16) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await?;
    ensure!(
        &reply == b"+PONG\r\n",
        "PING: {}",
        String::from_utf8_lossy(&reply)
    );
    Ok(())
}
