//! A primary with two replicas, all with the module, and three sentinels that promote a replica when the primary is gone
//! for two seconds.
//!
//! The sentinels know each other and the replicas from their first moment, so that a test need not wait until they have met.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::port::free_port;
use crate::process::Process;
use crate::redis::{Module, Redis};
use crate::wait;

/// The name of the service.
pub const SERVICE: &str = "mooring";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
/// How long a sentinel takes to believe that a server is gone. It sends one ping a second: with less it would often be
/// wrong on a busy machine.
const DOWN_AFTER_MS: u64 = 2000;
/// For all that takes a few seconds on an idle machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// The servers and sentinels.
#[derive(Debug)]
pub struct SentinelGroup {
    /// The first one is the primary at first.
    pub servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
    /// Of their configuration, which they write.
    directory: TempDir,
}

#[derive(Debug)]
struct Sentinel {
    /// Ends with the group.
    _process: Process,
    port: u16,
}

impl SentinelGroup {
    /// Starts all of them, and waits until the replicas follow and the sentinels see everything.
    pub async fn start() -> anyhow::Result<Self> {
        let primary = Redis::start().await?;
        let port = primary.port();
        Self::start_around(primary, port, &[]).await
    }

    /// The same around this primary, which replicas and sentinels reach at another port, with more settings of theirs, as
    /// `["bind-source-addr 127.0.0.2"]`.
    pub async fn start_around(
        primary: Redis,
        port: u16,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let mut servers = vec![primary];
        let of = format!("--replicaof 127.0.0.1 {port}");
        let arguments: Vec<String> = std::iter::once(of)
            .chain(settings.iter().map(|setting| format!("--{setting}")))
            .collect();
        let arguments: Vec<&str> = arguments
            .iter()
            .flat_map(|argument| argument.split_once(' ').map(<[&str; 2]>::from))
            .flatten()
            .collect();
        for _ in 0..REPLICAS {
            servers.push(Redis::start_with(Module::Loaded, &arguments).await?);
        }
        let directory = TempDir::with_prefix("mooring-sentinels-")?;
        let ports: Vec<u16> = (0..SENTINELS)
            .map(|_| free_port())
            .collect::<Result<_, _>>()?;
        let mut group = Self {
            servers,
            sentinels: Vec::new(),
            directory,
        };
        for &own_port in &ports {
            let path = group.directory.path().join(format!("{own_port}.conf"));
            let text = group.configuration(&ports, own_port, port, settings);
            std::fs::write(&path, text)?;
            group.sentinels.push(Sentinel::start(own_port, path).await?);
        }
        group.until_joined().await?;
        Ok(group)
    }

    fn configuration(
        &self,
        ports: &[u16],
        own_port: u16,
        primary: u16,
        settings: &[&str],
    ) -> String {
        let id = |port: u16| format!("{port:040x}");
        let mut lines = vec![
            format!("port {own_port}"),
            format!("sentinel myid {}", id(own_port)),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {primary} 2"),
            format!("sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}"),
            format!("sentinel failover-timeout {SERVICE} 5000"),
            format!("sentinel parallel-syncs {SERVICE} {REPLICAS}"),
        ];
        lines.extend(settings.iter().map(|&setting| setting.to_owned()));
        for replica in self.replicas() {
            lines.push(format!(
                "sentinel known-replica {SERVICE} 127.0.0.1 {}",
                replica.port()
            ));
        }
        for other in ports.iter().filter(|other| **other != own_port) {
            let id = id(*other);
            lines.push(format!(
                "sentinel known-sentinel {SERVICE} 127.0.0.1 {other} {id}"
            ));
        }
        lines.join("\n") + "\n"
    }

    async fn until_joined(&self) -> anyhow::Result<()> {
        wait::until_true("a group of sentinels", SETTLED_WITHIN, async || {
            let follow = self
                .replicas()
                .map(|replica| replica.cli(&["INFO", "replication"]));
            for info in follow {
                if !info?.contains("master_link_status:up") {
                    return Ok(false);
                }
            }
            // A replica must have told a sentinel of itself before it can be promoted.
            for sentinel in &self.sentinels {
                let replicas = sentinel.cli(&["SENTINEL", "REPLICAS", SERVICE])?;
                let quorum = sentinel.cli(&["SENTINEL", "CKQUORUM", SERVICE])?;
                if replicas.matches("master-link-status\nok").count() < REPLICAS
                    || !quorum.starts_with("OK 3")
                {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// The servers that are replicas at first.
    fn replicas(&self) -> impl Iterator<Item = &Redis> {
        self.servers.iter().skip(1)
    }

    /// The URL of the store.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
            .collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// Waits until the replicas have all that the primary has said so far.
    pub async fn until_replicated(&self) -> anyhow::Result<()> {
        let said = offset(
            self.servers.first().context("a primary")?,
            "master_repl_offset",
        )?;
        wait::until_true("the replicas to be in step", SETTLED_WITHIN, async || {
            for replica in self.replicas() {
                if offset(replica, "slave_repl_offset")? < said {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// The address of the replica that the first sentinel takes for the primary; none while that is the first server. On a
    /// busy machine, sentinels may promote another one later.
    pub fn promoted_address(&self) -> anyhow::Result<Option<String>> {
        let sentinel = self.sentinels.first().context("a sentinel")?;
        let named = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE])?;
        let mut addresses = self
            .replicas()
            .map(|replica| format!("127.0.0.1:{}", replica.port()));
        Ok(addresses.find(|address| *address == named.replace('\n', ":")))
    }

    /// Waits until a replica of the first primary has been promoted.
    pub async fn until_promoted(&self) -> anyhow::Result<()> {
        wait::until_true("a replica to be promoted", SETTLED_WITHIN, async || {
            // A sentinel that promotes a server closes the connections of its clients, this one's among them.
            let is_primary = |replica: &Redis| {
                let role = replica.cli(&["ROLE"]);
                role.is_ok_and(|role| role.starts_with("master"))
            };
            Ok(self.replicas().any(is_primary))
        })
        .await
    }
}

/// The number of a line of INFO replication.
fn offset(redis: &Redis, name: &str) -> anyhow::Result<u64> {
    let info = redis.cli(&["INFO", "replication"])?;
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.context("an offset")?.trim().parse()?)
}

impl Sentinel {
    async fn start(port: u16, configuration: PathBuf) -> anyhow::Result<Self> {
        let mut command = Command::new("redis-server");
        command.arg(&configuration).arg("--sentinel");
        let log = configuration.with_extension("log");
        let mut process = Process::start("redis-sentinel", &mut command, &log)?;
        process
            .ready(async || {
                TcpStream::connect(("127.0.0.1", port)).await?;
                Ok(())
            })
            .await?;
        Ok(Self {
            _process: process,
            port,
        })
    }

    fn cli(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let port = self.port.to_string();
        let output = Command::new("redis-cli")
            .args(["-p", &port])
            .args(arguments)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned();
        ensure!(output.status.success(), "{arguments:?}: {text}");
        Ok(text)
    }
}
