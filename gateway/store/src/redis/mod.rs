//! The Redis store: every transition is one command of the mooring module, executed by the server; or without the module,
//! [`scripted`].
//!
//! With the module, no decision is made here. [`servers`] are one server, or the primaries of a [`cluster`]. [`dial`] finds a
//! server, where necessary by its [`sentinels`], and checks its module; [`log_in`] connects and authenticates.
//! [`command_connection`] shares one connection, with [`tls`] if the URL says so,
//! between commands, with [`reply_reader`], and believes a reply only if it is the [`expected_reply`]. [`link`] maintains
//! that of all commands except the blocking one, for which [`events`] has its own; [`down_reason`] says why there is none,
//! and [`backoff`] when to try again. [`command`] writes requests on a record, [`reply`] parses replies by field name, of
//! which [`known_bindings`] spares most, and [`failure`] maps error replies to refusals by their code. [`sessions`],
//! [`fleet`], [`turns`], [`rate`], [`sealed`], [`desired_state`] and [`history`] have the other commands with their replies.

mod backoff;
mod cluster;
mod command;
mod command_connection;
mod counts;
mod desired_state;
mod dial;
mod down_reason;
mod events;
mod expected_reply;
mod failure;
mod fleet;
mod history;
mod known_bindings;
mod link;
mod link_entry;
mod link_state;
mod log_in;
mod prefixes;
mod rate;
mod reply;
mod reply_reader;
mod requests;
mod scripted;
mod sealed;
mod sentinels;
mod servers;
mod sessions;
#[cfg(test)]
mod tests;
mod tls;
mod turns;
mod way_marker;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mooring_session::names::{NameError, Problem, WorkerId};
use mooring_session::refusal::Refusal;
use mooring_session::time::Millis;
use mooring_settings::{ModuleUse, RedisTopology, RedisUrl};
use redis::{Cmd, Value};
use tokio::sync::watch;

use self::cluster::Cluster;
pub(super) use self::command::Wire;
use self::dial::Dialer;
use self::events::EventConnections;
use self::known_bindings::KnownBindings;
use self::link::Link;
use self::link_entry::{EntryCheck, LinkEntry};
pub(super) use self::link_state::{LinkState, Resend};
use self::scripted::{Admission, ScriptedStore};
use self::servers::{Servers, SingleServer};
pub use self::tls::check_certificates;
use self::way_marker::WayMarker;
use crate::error::{OpenError, StoreError};
use crate::events::{EventPath, WorkerEvent};
use crate::key::{Family, InitDigest, SessionKey};
use crate::status::RedisServerView;

/// A Redis.
#[derive(Debug)]
pub(super) struct RedisStore {
    servers: Servers,
    marker: Arc<WayMarker>,
    /// Without the module, what does its work.
    scripted: Option<Arc<ScriptedStore>>,
    known_bindings: KnownBindings,
    /// The number of the connection whose module is too old to delegate turns.
    without_delegations: AtomicU64,
    prefix: Box<str>,
}

impl RedisStore {
    /// Makes the first connections and starts what maintains them. An unreachable server is not an error here.
    ///
    /// # Errors
    /// A server is reachable but refuses this client, has no module that knows every command of this gateway, or does
    /// not index keys under `prefix`; the sentinels know no such service; or a server is no node of a cluster.
    pub(super) async fn open(
        url: &RedisUrl,
        prefix: &str,
        command_timeout: Duration,
    ) -> Result<Self, OpenError> {
        Self::open_with(url, prefix, command_timeout, ModuleUse::Required).await
    }

    /// The same without the module, on one server.
    ///
    /// # Errors
    /// A server is reachable but refuses this client or what the script does, or gateways with the module use it.
    pub(super) async fn open_scripted(
        url: &RedisUrl,
        prefix: &str,
        command_timeout: Duration,
    ) -> Result<Self, OpenError> {
        Self::open_with(url, prefix, command_timeout, ModuleUse::Unused).await
    }

    async fn open_with(
        url: &RedisUrl,
        prefix: &str,
        command_timeout: Duration,
        module: ModuleUse,
    ) -> Result<Self, OpenError> {
        let marker = Arc::new(WayMarker::new(prefix, module));
        if let RedisTopology::Cluster(cluster) = url.topology() {
            let cluster = Box::pin(Cluster::open(cluster, prefix, command_timeout)).await?;
            return Ok(Self::over(Servers::Cluster(cluster), marker, None, prefix));
        }
        let admission = match module {
            ModuleUse::Required => None,
            ModuleUse::Unused => Some(Arc::new(Admission::new(prefix))),
        };
        let mut checks: Vec<Arc<dyn EntryCheck>> = vec![Arc::<WayMarker>::clone(&marker)];
        if let Some(admission) = &admission {
            // The marker is left alone where the server cannot be used.
            checks.insert(0, Arc::<Admission>::clone(admission));
        }
        let entry = LinkEntry {
            heads: Family::heads(prefix),
            checks,
        };
        let dialer = Arc::new(Dialer::new(url, command_timeout, module));
        let link = Arc::new(Link::open(Arc::clone(&dialer), entry).await?);
        let scripted =
            admission.map(|admission| ScriptedStore::new(Arc::clone(&link), admission, prefix));
        let events = EventConnections::new(dialer, link.watch(), prefix, scripted.clone());
        let servers = Servers::One(SingleServer { link, events });
        Ok(Self::over(servers, marker, scripted, prefix))
    }

    fn over(
        servers: Servers,
        marker: Arc<WayMarker>,
        scripted: Option<Arc<ScriptedStore>>,
        prefix: &str,
    ) -> Self {
        Self {
            servers,
            marker,
            scripted,
            known_bindings: KnownBindings::default(),
            without_delegations: AtomicU64::default(),
            prefix: prefix.into(),
        }
    }

    /// What the URL names, without credentials.
    pub(super) fn address(&self) -> &str {
        self.servers.address()
    }

    /// The server in use, or the primaries of the cluster.
    pub(super) fn server(&self) -> RedisServerView {
        self.servers.view()
    }

    pub(super) async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        let wait = |timeout| self.servers.wait_for_events(worker, timeout);
        match &self.scripted {
            Some(scripted) => scripted.wait_for_events(timeout, wait).await,
            None => wait(timeout).await,
        }
    }

    /// The way by which this worker's events arrive, while they do.
    pub(super) fn event_path(&self, worker: &WorkerId) -> Option<EventPath> {
        self.servers.event_path(worker)
    }

    /// Whether there is a connection, of a cluster to any primary, with every change.
    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        self.servers.watch()
    }

    pub(super) async fn run<T: Wire>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        if request.is_without_instances() {
            // The same refusal as by the rules, which could not be parsed from the server's error.
            return Err(StoreError::Refused(Refusal::Argument(NameError {
                what: "INSTANCES",
                problem: Problem::Range(1, mooring_session::limits::INSTANCES_MAX as u64),
            })));
        }
        if let Some(scripted) = &self.scripted {
            return scripted.run(key, request, T::RESEND).await;
        }
        let known = request.known_binding(key, &self.known_bindings);
        let mut command = sized_command();
        request.write(key, &mut command);
        command.arg(known.as_ref().map(|known| ("EPOCH", known.epoch)));
        let value = self.send(&command, T::COMMAND, T::RESEND).await?;
        if let (Some(known), Value::Int(_)) = (&known, &value)
            && let Some(reply) = request.confirmed_reply(known)
        {
            return Ok(reply);
        }
        let reply = request
            .read(value)
            .map_err(failure::invalid_reply(T::COMMAND))?;
        request.note_binding(key, &reply, &self.known_bindings);
        Ok(reply)
    }

    pub(super) async fn put_init(
        &self,
        digest: &InitDigest,
        json: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let mut command = redis::cmd("SET");
        command
            .arg(digest.key(&self.prefix))
            .arg(json)
            .arg("PX")
            .arg(keep.get());
        self.send(&command, "SET", Resend::Once).await.map(drop)
    }

    pub(super) async fn get_init(&self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(digest.key(&self.prefix));
        let value = self.send(&command, "GET", Resend::Once).await?;
        reply::optional_text(value).map_err(failure::invalid_reply("GET"))
    }

    pub(super) async fn delete_init(&self, digest: &InitDigest) -> Result<(), StoreError> {
        let mut command = redis::cmd("DEL");
        command.arg(digest.key(&self.prefix));
        self.send(&command, "DEL", Resend::Once).await.map(drop)
    }

    /// Sends a command whose first argument is its key.
    async fn send(
        &self,
        command: &Cmd,
        name: &'static str,
        resend: Resend,
    ) -> Result<Value, StoreError> {
        failure::accepted(self.servers.send(command, resend).await?, name)
    }
}

/// A command with room for what most of a session's have: they are built without growing.
fn sized_command() -> Cmd {
    Cmd::with_capacity(12, 256)
}
