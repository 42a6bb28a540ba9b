//! A Redis server of a test's own, with or without the module, that keeps its data over a restart.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::paths;
use crate::port::free_port;
use crate::process::Process;

/// How long a starting node waits for holders of turns: the setting's lowest value.
const FIRST_QUIET: [&str; 2] = ["mooring.turn-lease-max-ms", "100"];

/// The same setting as it is by default.
const LEASE_MAX_MS: &str = "2000";

/// Whether the server has the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// `libmooring.so` of this build is loaded.
    Loaded,
    /// A stock Redis.
    Absent,
}

/// Whether the tests run without the module: with the environment variable `MOORING_TESTS_MODULE=none`, every fleet that
/// does not ask for the module itself is one without it.
#[must_use]
pub fn is_without_module() -> bool {
    std::env::var_os("MOORING_TESTS_MODULE").is_some_and(|module| module == "none")
}

/// A running `redis-server`.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    program: Vec<String>,
    arguments: Vec<String>,
    module: Module,
    directory: TempDir,
}

impl Redis {
    /// Starts a server with the module and the append-only file. It grants turns almost immediately, since there are
    /// none from before its first start to wait for. After a restart there are.
    pub async fn start() -> anyhow::Result<Self> {
        if is_without_module() {
            return Self::start_with(Module::Absent, &[]).await;
        }
        let [name, lease_max_ms] = FIRST_QUIET;
        let mut redis =
            Self::start_with(Module::Loaded, &[&format!("--{name}"), lease_max_ms]).await?;
        redis
            .arguments
            .truncate(redis.arguments.len() - FIRST_QUIET.len());
        redis.cli(&["CONFIG", "SET", name, LEASE_MAX_MS])?;
        Ok(redis)
    }

    /// Starts a server with further command-line arguments, for instance `["--appendonly", "no"]`; they follow the
    /// harness's own and override them.
    pub async fn start_with(module: Module, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_by(&["redis-server"], module, arguments).await
    }

    /// Starts a replica of `primary`. It replies immediately; the caller has to check whether it has caught up.
    pub async fn start_replica(
        primary: &Self,
        module: Module,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let of = format!("127.0.0.1 {}", primary.port());
        let mut all = vec!["--replicaof", &of];
        all.extend(arguments);
        Self::start_with(module, &all).await
    }

    /// Starts a server by a program and first arguments of the caller's choice, for instance a debugger in front
    /// of `redis-server`.
    pub async fn start_by(
        program: &[&str],
        module: Module,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let program: Vec<String> = program.iter().map(|&word| word.to_owned()).collect();
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
            // A replica of a test is the only one that comes: nothing is gained by waiting for more.
            ("--repl-diskless-sync-delay", "0".to_owned()),
        ];
        let mut all: Vec<String> = own
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let process = spawn(&program, &all, module, &directory)?;
        let mut redis = Self {
            process,
            port,
            program,
            arguments: all,
            module,
            directory,
        };
        redis.ready().await?;
        Ok(redis)
    }

    /// Starts again on the same port and directory after [`Redis::stop_server`] or a kill.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.restart_as(self.module).await
    }

    /// The same with or without the module, from now on.
    pub async fn restart_as(&mut self, module: Module) -> anyhow::Result<()> {
        self.module = module;
        self.process.kill_now()?;
        self.process = spawn(&self.program, &self.arguments, module, &self.directory)?;
        self.ready().await
    }

    /// SIGTERM: Redis saves its data and closes its connections.
    pub async fn stop_server(&mut self) -> anyhow::Result<()> {
        self.process.terminate().await.map(|_| ())
    }

    /// The process, to kill, stop or read the log of.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The directory of the server's data and log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
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

fn spawn(
    program: &[String],
    arguments: &[String],
    module: Module,
    directory: &TempDir,
) -> anyhow::Result<Process> {
    let log: PathBuf = directory.path().join("redis.log");
    let (program, first) = program.split_first().context("a program to start")?;
    let mut command = Command::new(program);
    command.args(first).args(arguments);
    if module == Module::Loaded {
        command.arg("--loadmodule").arg(paths::redis_module()?);
    }
    Process::start("redis-server", &mut command, &log)
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
