//! The configured servers and their instances, as the request path needs them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Uri};
use mooring_session::names::{InstanceName, ServerName};
use mooring_session::rules::Ownership;

use super::Reach;
use crate::settings::{Concurrency, OnUpstreamLoss};

/// One of the interchangeable processes behind a server.
#[derive(Debug)]
pub struct Instance {
    /// Its name in bindings: the URL as it is configured.
    pub name: InstanceName,
    /// Its MCP endpoint.
    pub uri: Uri,
    /// Since when it refuses connections, as this process has seen it.
    pub reach: Reach,
}

/// One configured upstream server.
#[derive(Debug)]
pub struct Server {
    /// Its id in paths and bindings.
    pub id: ServerName,
    /// Its instances, at least one.
    pub instances: Vec<Arc<Instance>>,
    /// Whether its sessions are kept.
    pub keeps_sessions: bool,
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

/// How sessions at a server are carried.
#[derive(Clone, Copy, Debug)]
pub struct Carriage {
    /// Whether its sessions are kept.
    pub keeps_sessions: bool,
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
        carriage: Carriage,
        headers: HeaderMap,
    ) -> Self {
        let Carriage {
            keeps_sessions,
            ownership,
            concurrency,
            on_upstream_loss,
        } = carriage;
        Self {
            id,
            instances,
            keeps_sessions,
            ownership,
            concurrency,
            on_upstream_loss,
            headers,
            next: AtomicUsize::new(0),
        }
    }

    /// The instance of this name; none if it is not configured any more.
    #[must_use]
    pub fn instance(&self, name: &InstanceName) -> Option<&Arc<Instance>> {
        self.instances
            .iter()
            .find(|instance| instance.name == *name)
    }

    /// The names of all instances, as BIND and REBIND take them.
    #[must_use]
    pub fn instance_names(&self) -> Vec<InstanceName> {
        self.instances
            .iter()
            .map(|instance| instance.name.clone())
            .collect()
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
