//! Connects to the Redis that serves: finds it, logs in, and checks that it has the module in a compatible version.
//!
//! Invariants: a connection is returned only if the server knows every command of [`NEEDED`], and its replies name their
//! requests; where the primary is found among several servers, only if the server itself says that it is one, whoever
//! has named it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mooring_session::request_digest::NAMES_REQUEST;
use mooring_settings::{ModuleUse, RedisEndpoint, RedisTopology, RedisUrl};
use redis::Value;
use tokio::time::{Instant, sleep, timeout};

use super::command_connection::CommandConnection;
use super::down_reason::{DownReason, timed_out};
use super::log_in::{log_in, send};
use super::reply::text;
use super::sentinels::{NamedServer, Sentinels};
use crate::lock::lock;

/// Every command of the module that this gateway sends. A module without one of them is too old and is refused at the
/// start, not at the first call.
const NEEDED: [&str; 21] = [
    "session.create",
    "session.touch",
    "session.get",
    "session.end",
    "session.kill",
    "session.route",
    "session.bind",
    "session.confirm",
    "session.rebind",
    "session.unbind",
    "session.enter",
    "session.leave",
    "session.list",
    "session.reap",
    "session.claim",
    "session.forget",
    "session.rate",
    "worker.beat",
    "worker.gone",
    "worker.list",
    "worker.wait",
];

/// Pause between questions to the sentinels while there is a connection.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The sentinels that answer know no configuration that is as new as that of the server in use.
const OLDER: &str = "the sentinels that answer name only servers of an older configuration";

/// A connection, and the server at its other end.
pub(super) struct ServerConnection {
    pub(super) connection: CommandConnection,
    pub(super) server: Arc<RedisEndpoint>,
}

/// How the server is found, and how long it is waited for.
#[derive(Debug)]
pub(super) struct Dialer {
    topology: Topology,
    module: ModuleUse,
    /// What the URL names, without credentials.
    pub(super) address: String,
    pub(super) command_timeout: Duration,
}

#[derive(Debug)]
enum Topology {
    Single(Arc<RedisEndpoint>),
    /// A primary of a cluster: another one serves other keys.
    ClusterNode(Arc<RedisEndpoint>),
    FirstPrimary(ServerList),
    Sentinels(Box<Sentinels>),
}

/// Servers, of which one is the primary.
#[derive(Debug)]
struct ServerList {
    servers: Vec<Arc<RedisEndpoint>>,
    /// The primary that was used last. It is tried first: each server before it that does not answer costs a timeout.
    last: Mutex<Option<Arc<RedisEndpoint>>>,
}

impl ServerList {
    /// Each once, in the order in which they are tried.
    fn to_try(&self) -> Vec<Arc<RedisEndpoint>> {
        let last = lock(&self.last).clone();
        let is_last = |server: &&Arc<RedisEndpoint>| {
            last.as_ref().is_some_and(|last| Arc::ptr_eq(last, server))
        };
        let others = self.servers.iter().filter(|server| !is_last(server));
        last.iter().chain(others).cloned().collect()
    }
}

impl Dialer {
    /// Nothing is sent yet.
    pub(super) fn new(url: &RedisUrl, command_timeout: Duration, module: ModuleUse) -> Self {
        let (topology, address) = match url.topology() {
            RedisTopology::Single(server) => {
                let address = server.address.to_string();
                (Topology::Single(Arc::new(server.clone())), address)
            }
            // Each node of a cluster has a dialer of its own.
            RedisTopology::FirstPrimary(_) | RedisTopology::Cluster(_) => {
                let servers = url.endpoints();
                let address = addresses(servers);
                let list = ServerList {
                    servers: servers.iter().cloned().map(Arc::new).collect(),
                    last: Mutex::default(),
                };
                (Topology::FirstPrimary(list), address)
            }
            RedisTopology::Sentinels(service) => {
                let sentinels = addresses(service.sentinels());
                let address = format!("{} (sentinels {sentinels})", service.name());
                let sentinels = Sentinels::new(service.clone(), command_timeout);
                (Topology::Sentinels(Box::new(sentinels)), address)
            }
        };
        Self {
            topology,
            module,
            address,
            command_timeout,
        }
    }

    /// Whether the module of the server is used.
    pub(super) const fn module(&self) -> ModuleUse {
        self.module
    }

    /// A dialer of one node of a cluster, which serves while it says that it is a primary.
    pub(super) fn of_node(node: Arc<RedisEndpoint>, command_timeout: Duration) -> Self {
        Self {
            address: node.address.to_string(),
            topology: Topology::ClusterNode(node),
            module: ModuleUse::Required,
            command_timeout,
        }
    }

    /// How the server is found, in one word.
    pub(super) fn discovery(&self) -> &'static str {
        match self.topology {
            Topology::Single(_) => "url",
            Topology::ClusterNode(_) => "cluster",
            Topology::FirstPrimary(_) => "list",
            Topology::Sentinels(_) => "sentinel",
        }
    }

    /// Whether only a server serves that says that it is a primary. The one that a single URL leads to need not say so.
    pub(super) fn needs_primary(&self) -> bool {
        !matches!(self.topology, Topology::Single(_))
    }

    /// Finds the server that serves and connects to it: within twice the command timeout for each server that is tried,
    /// and once for the sentinels, which are asked all at the same time.
    pub(super) async fn connect(&self) -> Result<ServerConnection, DownReason> {
        match &self.topology {
            Topology::Single(server) | Topology::ClusterNode(server) => {
                self.connect_to(server).await
            }
            Topology::FirstPrimary(list) => {
                let found = self.connect_to_first(&list.to_try()).await?;
                *lock(&list.last) = Some(Arc::clone(&found.server));
                Ok(found)
            }
            Topology::Sentinels(sentinels) => {
                let named = sentinels.to_try(sentinels.ask().await?, Instant::now());
                self.connect_to_named(sentinels, &named).await
            }
        }
    }

    /// Waits until sentinels name another primary than the connected one, by no older configuration, and it says that it
    /// is one. The server itself cannot tell while a partition keeps the sentinels from it. Never ends where no sentinels
    /// are asked.
    pub(super) async fn find_successor(&self, connected: &RedisEndpoint) -> ServerConnection {
        let Topology::Sentinels(sentinels) = &self.topology else {
            return std::future::pending().await;
        };
        loop {
            sleep(ASK_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
            let found = self.successor_by(sentinels, connected).await;
            sentinels.note_problem(found.as_ref().err().cloned());
            if let Ok(Some(found)) = found {
                return found;
            }
        }
    }

    /// Why it is not known whether another primary than the connected one is to be used.
    pub(super) fn successor_problem(&self) -> Option<String> {
        match &self.topology {
            Topology::Sentinels(sentinels) => sentinels.problem().map(|down| down.problem()),
            Topology::Single(_) | Topology::ClusterNode(_) | Topology::FirstPrimary(_) => None,
        }
    }

    /// None if the sentinels name the connected server.
    async fn successor_by(
        &self,
        sentinels: &Sentinels,
        connected: &RedisEndpoint,
    ) -> Result<Option<ServerConnection>, DownReason> {
        let named = sentinels.ask().await?;
        let newest = newest(&named);
        // All sentinels that answer may be stale.
        if newest.iter().any(|named| sentinels.is_older(named)) {
            return Err(DownReason::Unreachable(OLDER.to_owned()));
        }
        let is_connected = |named: &&NamedServer| named.server.address == connected.address;
        if let Some(named) = newest.iter().find(is_connected) {
            sentinels.note_used(named);
            return Ok(None);
        }
        self.connect_to_named(sentinels, newest).await.map(Some)
    }

    async fn connect_to_named(
        &self,
        sentinels: &Sentinels,
        named: &[NamedServer],
    ) -> Result<ServerConnection, DownReason> {
        let servers: Vec<_> = named
            .iter()
            .map(|named| Arc::clone(&named.server))
            .collect();
        let found = self.connect_to_first(&servers).await?;
        let is_found = |named: &&NamedServer| Arc::ptr_eq(&named.server, &found.server);
        if let Some(named) = named.iter().find(is_found) {
            sentinels.note_used(named);
        }
        Ok(found)
    }

    async fn connect_to_first(
        &self,
        servers: &[Arc<RedisEndpoint>],
    ) -> Result<ServerConnection, DownReason> {
        let mut problems = Vec::new();
        for server in servers {
            match self.connect_to(server).await {
                Ok(found) => return Ok(found),
                Err(down) => problems.push((server.address.to_string(), down)),
            }
        }
        Err(DownReason::of_all(problems))
    }

    /// Connects to this server, and checks its role and module, within twice the command timeout.
    pub(super) async fn connect_to(
        &self,
        server: &Arc<RedisEndpoint>,
    ) -> Result<ServerConnection, DownReason> {
        let connection = log_in(server, self.command_timeout, self.needs_primary()).await?;
        if self.module == ModuleUse::Required {
            let mut command = redis::cmd("COMMAND");
            command.arg("INFO").arg(&NEEDED);
            let answer = timeout(self.command_timeout, send(&connection, &command));
            is_complete(&answer.await.map_err(|_| timed_out())??)?;
        }
        Ok(ServerConnection {
            connection,
            server: Arc::clone(server),
        })
    }
}

pub(super) fn addresses(servers: &[RedisEndpoint]) -> String {
    let addresses: Vec<_> = servers
        .iter()
        .map(|server| server.address.to_string())
        .collect();
    addresses.join(", ")
}

/// Those of the newest configuration; the first is of it.
fn newest(named: &[NamedServer]) -> &[NamedServer] {
    let epoch = named.first().map(|first| first.epoch);
    let is_older = |named: &NamedServer| Some(named.epoch) != epoch;
    let end = named.iter().position(is_older).unwrap_or(named.len());
    named.get(..end).unwrap_or_default()
}

/// A module that has every command, but whose replies name no request.
const WITHOUT_NAMES: &str = "replies that name their request";

/// Where an entry of COMMAND INFO has the hints.
const HINTS: usize = 7;

/// COMMAND INFO returns one entry per name: null or an empty list if the command is unknown.
fn is_complete(answer: &Value) -> Result<(), DownReason> {
    let entries = answer.as_sequence().unwrap_or(&[]);
    let is_known = |index: usize| {
        let entry = entries.get(index).and_then(Value::as_sequence);
        entry.is_some_and(|entry| !entry.is_empty())
    };
    let missing: Vec<&str> = NEEDED
        .iter()
        .enumerate()
        .filter(|(index, _)| !is_known(*index))
        .map(|(_, name)| *name)
        .collect();
    let names_request = |entry: &Value| {
        let hints = entry.as_sequence().and_then(|entry| entry.get(HINTS));
        let mut hints = hints.and_then(Value::as_sequence).into_iter().flatten();
        hints.any(|hint| text(hint) == Some(NAMES_REQUEST))
    };
    match missing.len() {
        0 if !entries.iter().any(names_request) => {
            Err(DownReason::OldModule(WITHOUT_NAMES.to_owned()))
        }
        0 => Ok(()),
        all if all == NEEDED.len() => Err(DownReason::NoModule),
        _ => Err(DownReason::OldModule(missing.join(", "))),
    }
}

/// The way in use, in one word.
pub(super) const fn way_word(way: ModuleUse) -> &'static str {
    match way {
        ModuleUse::Required => "module",
        ModuleUse::Unused => "script",
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    fn answer(is_known: impl Fn(&str) -> bool) -> Value {
        answer_with(NAMES_REQUEST, is_known)
    }

    fn answer_with(hint: &str, is_known: impl Fn(&str) -> bool) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry = |name: &&str| match is_known(name) {
            true => {
                let mut entry = vec![Value::Nil; HINTS];
                entry[0] = text(name);
                entry.push(Value::Array(vec![text(hint)]));
                Value::Array(entry)
            }
            false => Value::Nil,
        };
        Value::Array(NEEDED.iter().map(entry).collect())
    }

    #[test]
    fn a_module_that_lacks_a_command_is_told_from_none_at_all() {
        assert_eq!(is_complete(&answer(|_| true)), Ok(()));
        let nameless = answer_with("nondeterministic_output", |_| true);
        let old = DownReason::OldModule(WITHOUT_NAMES.to_owned());
        assert_eq!(is_complete(&nameless), Err(old));
        assert_eq!(is_complete(&answer(|_| false)), Err(DownReason::NoModule));
        assert_eq!(is_complete(&Value::Nil), Err(DownReason::NoModule));
        let without = |name: &str| !name.starts_with("worker.") && name != "session.bind";
        let Err(DownReason::OldModule(missing)) = is_complete(&answer(without)) else {
            unreachable!("commands are missing");
        };
        assert!(missing.starts_with("session.bind, worker."), "{missing}");
    }
}
