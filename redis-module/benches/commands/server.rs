//! A redis-server with the module loaded, which ends with the benchmark.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::Presence;
use crate::client::Client;

/// Long enough to read a million sessions from a file.
const START_WAIT_MAX: Duration = Duration::from_secs(120);
const UNLOAD_WAIT_MAX: Duration = Duration::from_secs(60);

/// Whether the server keeps its data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It does not.
    None,
    /// An append-only file with `appendfsync everysec`. It is never rewritten, which would affect the figures.
    EverySecond,
}

pub(crate) struct Server {
    process: Child,
    port: u16,
    module: PathBuf,
    /// Removed with the server.
    directory: TempDir,
}

impl Server {
    /// Builds the module in release mode, and starts a server with it, pinned to one processor.
    pub(crate) fn start(persistence: Persistence) -> Result<Self> {
        let module = build_module()?;
        let server = Self::start_in(
            tempfile::tempdir()?,
            module,
            persistence,
            Presence::Loaded,
            &[],
        )?;
        let own = std::process::id().to_string();
        let pinned = Command::new("taskset")
            .args(["-a", "-p", "-c", "1", &own])
            .stdout(Stdio::null())
            .status()?;
        ensure!(pinned.success(), "taskset: two processors are needed");
        Ok(server)
    }

    /// A replica of this one that has all of its data.
    pub(crate) fn start_replica(&self, presence: Presence) -> Result<Self> {
        let primary = self.port.to_string();
        let replica = Self::start_in(
            tempfile::tempdir()?,
            self.module.clone(),
            Persistence::None,
            presence,
            &["--replicaof", "127.0.0.1", &primary],
        )?;
        let deadline = Instant::now() + START_WAIT_MAX;
        let mut client = Client::connect(replica.port, 1)?;
        while !client
            .ask(&["INFO", "replication"])?
            .contains("master_link_status:up")
        {
            ensure!(Instant::now() < deadline, "the replica did not synchronize");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(replica)
    }

    /// A server that has loaded the files of this one, and replies.
    pub(crate) fn start_from_files(
        &self,
        persistence: Persistence,
        presence: Presence,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let copied = Command::new("cp")
            .args(["-r", "."])
            .arg(directory.path())
            .current_dir(self.directory.path())
            .status()?;
        ensure!(copied.success(), "cp: the server's files were not copied");
        Self::start_in(directory, self.module.clone(), persistence, presence, &[])
    }

    fn start_in(
        directory: TempDir,
        module: PathBuf,
        persistence: Persistence,
        presence: Presence,
        arguments: &[&str],
    ) -> Result<Self> {
        // The port was free a moment ago. If another process takes it, the server does not start and the benchmark
        // fails.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new("taskset");
        command
            .args(["-c", "0", "redis-server", "--save", ""])
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--hash-max-listpack-value", "512"])
            .args(["--enable-module-command", "yes"])
            .args(match persistence {
                Persistence::None => ["--appendonly", "no"],
                Persistence::EverySecond => ["--appendonly", "yes"],
            })
            .args(["--auto-aof-rewrite-percentage", "0"])
            .arg("--dir")
            .arg(directory.path())
            .args(arguments)
            .stdout(Stdio::null());
        if presence == Presence::Loaded {
            command.arg("--loadmodule").arg(&module);
        }
        let process = command
            .spawn()
            .context("starting redis-server under taskset")?;
        let server = Self {
            process,
            port,
            module,
            directory,
        };
        server.wait_until_up()?;
        Ok(server)
    }

    fn wait_until_up(&self) -> Result<()> {
        let deadline = Instant::now() + START_WAIT_MAX;
        while Instant::now() < deadline {
            if let Ok(mut client) = Client::connect(self.port, 1)
                && client.ask(&["PING"]).is_ok()
            {
                return Ok(());
            }
            std::thread::yield_now();
        }
        bail!("redis-server did not come up: is it installed?")
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Unloads the module. The server refuses that while the module has a timer or a blocked client.
    pub(crate) fn unload_module(&self) -> Result<()> {
        let mut client = Client::connect(self.port, 1)?;
        let deadline = Instant::now() + UNLOAD_WAIT_MAX;
        while let Err(refused) = client.ask(&["MODULE", "UNLOAD", "mooring"]) {
            ensure!(Instant::now() < deadline, "{refused}");
        }
        Ok(())
    }

    /// Loads the module again.
    pub(crate) fn load_module(&self) -> Result<()> {
        let path = self.module.display().to_string();
        Client::connect(self.port, 1)?.ask(&["MODULE", "LOAD", &path])?;
        Ok(())
    }

    /// The CPU time that the server's main thread has taken since it started.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let info = Client::connect(self.port, 1)?.ask(&["INFO", "cpu"])?;
        let field = |name: &str| -> Result<f64> {
            let value = info.lines().find_map(|line| line.strip_prefix(name));
            Ok(value
                .with_context(|| format!("INFO cpu lacks {name}"))?
                .trim()
                .parse()?)
        };
        Ok(field("used_cpu_user_main_thread:")? + field("used_cpu_sys_main_thread:")?)
    }

    /// Describes the server.
    pub(crate) fn describe(&self) -> Result<String> {
        let info = Client::connect(self.port, 1)?.ask(&["INFO", "server"])?;
        let version = info.lines().find(|line| line.starts_with("redis_version"));
        Ok(format!(
            "{} over TCP on loopback",
            version.unwrap_or("redis").trim()
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Cargo does not build the library for the benchmark of a crate that cannot be linked.
fn build_module() -> Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "mooring-module"])
        .status()?;
    ensure!(built.success(), "the module does not build");
    let own = std::env::current_exe()?;
    let directory = own.parent().and_then(Path::parent);
    let module = directory
        .context("an odd place for a benchmark")?
        .join("libmooring.so");
    ensure!(module.exists(), "{} is not there", module.display());
    Ok(module)
}
