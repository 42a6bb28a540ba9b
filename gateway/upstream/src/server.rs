//! The configured servers and their instances, as the request path needs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Uri};
use mooring_session::names::{InstanceName, ServerName, UpstreamSession};
use mooring_session::rules::Ownership;

use super::{ContactLog, Reach, Statefulness, StatefulnessSeen};
use mooring_settings::{Affinity, Concurrency, OnUpstreamLoss};

/// One of the interchangeable processes behind a server.
#[derive(Debug)]
pub struct Instance {
    /// Its name in bindings: the URL as it is configured.
    pub name: InstanceName,
    /// Its MCP endpoint.
    pub uri: Uri,
    /// Since when it refuses connections, as this process has seen it.
    pub reach: Reach,
    /// Whether it assigned a session id when it was last initialized, as this process has seen it.
    pub statefulness: StatefulnessSeen,
    /// What came of the last contact of this process with it.
    pub contact: ContactLog,
}

/// One configured upstream server.
#[derive(Debug)]
pub struct Server {
    /// Its id in paths and bindings.
    pub id: ServerName,
    /// Its instances, at least one.
    pub instances: Vec<Arc<Instance>>,
    /// Whether its sessions are kept.
    pub affinity: Affinity,
    /// Whether any worker reaches a session of it, or only the one that holds its connection.
    pub ownership: Ownership,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens when an instance loses a session.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Headers that every request to it carries; credentials, never logged.
    pub headers: HeaderMap,
    next: AtomicUsize,
}

/// How sessions at a server are handled.
#[derive(Clone, Copy, Debug)]
pub struct SessionPolicy {
    /// Whether its sessions are kept.
    pub affinity: Affinity,
    /// Who may drive one.
    pub ownership: Ownership,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens when one is lost.
    pub on_upstream_loss: OnUpstreamLoss,
}

impl Server {
    /// A server over at least one instance.
    #[must_use]
    pub fn new(
        id: ServerName,
        instances: Vec<Arc<Instance>>,
        policy: SessionPolicy,
        headers: HeaderMap,
    ) -> Self {
        let SessionPolicy {
            affinity,
            ownership,
            concurrency,
            on_upstream_loss,
        } = policy;
        Self {
            id,
            instances,
            affinity,
            ownership,
            concurrency,
            on_upstream_loss,
            headers,
            next: AtomicUsize::new(0),
        }
    }

    /// Whether a session that begins now is kept.
    #[must_use]
    pub fn keeps_new_sessions(&self) -> bool {
        match self.affinity {
            Affinity::Kept => true,
            Affinity::Off => false,
            Affinity::ByServer => self.statefulness() != Statefulness::Stateless,
        }
    }

    /// What its instances said when they were initialized: one that is stateful makes the server so, and all of them have
    /// to be stateless for it to be.
    #[must_use]
    pub fn statefulness(&self) -> Statefulness {
        let seen = self.instances.iter();
        Statefulness::of_all(seen.map(|instance| instance.statefulness.get()))
    }

    /// Notes what an instance said when it was initialized. A change of what the server decides is logged.
    pub fn note_statefulness(&self, instance: &Instance, assigned: Option<&UpstreamSession>) {
        let before = self.statefulness();
        instance.statefulness.set(match assigned {
            Some(_) => Statefulness::Stateful,
            None => Statefulness::Stateless,
        });
        let now = self.statefulness();
        if self.affinity != Affinity::ByServer || now == before {
            return;
        }
        let server = &self.id;
        match now {
            Statefulness::Stateful => {
                tracing::info!(%server, instance = %instance.name, affinity = "on", "the server assigns session ids: its sessions are kept");
            }
            Statefulness::Stateless => {
                tracing::info!(%server, affinity = "off", "no instance of the server assigns session ids: calls go to any instance");
            }
            Statefulness::Unknown => {
                tracing::info!(%server, affinity = "on", "not all instances of the server have answered: its sessions are kept until they have");
            }
        }
    }

    /// The instance of this name; none if it is not configured any more.
    #[must_use]
    pub fn instance(&self, name: &InstanceName) -> Option<&Arc<Instance>> {
        self.instances
            .iter()
            .find(|instance| instance.name == *name)
    }

    /// What clients are told of an instance: its place in the settings, because its name is an address inside the network
    /// of the servers.
    #[must_use]
    pub fn client_name(&self, name: &InstanceName) -> Box<str> {
        let place = self
            .instances
            .iter()
            .position(|instance| instance.name == *name);
        match place {
            Some(place) => format!("instance-{}", place.saturating_add(1)).into(),
            None => "instance-removed".into(),
        }
    }

    /// The names of all instances, as BIND and REBIND take them.
    #[must_use]
    pub fn instance_names(&self) -> Vec<InstanceName> {
        self.instances
            .iter()
            .map(|instance| instance.name.clone())
            .collect()
    }

    /// The names of the instances at which a session may begin: all that can be reached as far as this process knows, or all
    /// where there is none.
    #[must_use]
    pub fn candidate_names(&self) -> Vec<InstanceName> {
        let reached = self.instances.iter();
        let reached = reached.filter(|instance| !instance.reach.is_unreached());
        let names: Vec<_> = reached.map(|instance| instance.name.clone()).collect();
        if names.is_empty() {
            self.instance_names()
        } else {
            names
        }
    }

    /// All instances, each time beginning with the next one: for calls that no session binds.
    pub fn in_turn(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.instances.len().max(1);
        let (before, from) = self.instances.split_at(first.min(self.instances.len()));
        from.iter().chain(before)
    }
}

/// All configured servers by id.
#[derive(Debug)]
pub struct Servers {
    by_id: BTreeMap<Box<str>, Arc<Server>>,
}

impl Servers {
    /// These servers.
    #[must_use]
    pub fn new(servers: Vec<Arc<Server>>) -> Self {
        let by_id = servers
            .into_iter()
            .map(|server| (server.id.as_str().into(), server))
            .collect();
        Self { by_id }
    }

    /// The server of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<Server>> {
        self.by_id.get(id)
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.by_id.values()
    }
}
