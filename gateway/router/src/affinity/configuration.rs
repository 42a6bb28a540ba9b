//! What a router takes from settings that can change while it runs: the servers, and the limits of sessions.
//!
//! Invariant: requests do not look up servers here; they bring the one that they began with. A server that is no longer
//! configured is kept for cleaning up: its instances are still told which upstream sessions have ended.

use std::num::NonZeroU64;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mooring_session::names::{InstanceName, ServerName};

use super::SessionRouter;
use mooring_upstream::{Instance, Server, Servers};

/// Most earlier definitions of servers that are kept; the oldest go first.
const FORMER_SERVERS_MAX: usize = 256;

/// Limits of the sessions of one principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLimits {
    /// Most active sessions per principal; `None` for no limit.
    pub sessions_max: Option<NonZeroU64>,
    /// Most sessions that a principal may begin per minute; `None` for no limit.
    pub initializes_per_minute: Option<NonZeroU64>,
}

/// The servers and limits of a router. Replaced as a whole.
#[derive(Debug)]
pub(super) struct RouterConfiguration {
    servers: Arc<Servers>,
    limits: SessionLimits,
    /// Earlier definitions of servers, oldest first.
    former: Vec<Arc<Server>>,
}

impl RouterConfiguration {
    /// The first one of a router.
    pub(super) fn new(servers: Arc<Servers>, limits: SessionLimits) -> ArcSwap<Self> {
        ArcSwap::from_pointee(Self {
            servers,
            limits,
            former: Vec::new(),
        })
    }

    /// The one that follows: servers that it has no longer, or defines otherwise, are former ones.
    fn next(&self, servers: Arc<Servers>, limits: SessionLimits) -> Self {
        let is_kept = |server: &&Arc<Server>| {
            let next = servers.get(server.id.as_str());
            next.is_some_and(|next| Arc::ptr_eq(next, server))
        };
        let replaced = self.servers.iter().filter(|server| !is_kept(server));
        let mut former = self.former.clone();
        former.extend(replaced.cloned());
        let excess = former.len().saturating_sub(FORMER_SERVERS_MAX);
        former.drain(..excess);
        Self {
            servers,
            limits,
            former,
        }
    }

    /// The instance of this name, with the latest definition of its server that has it.
    fn instance(
        &self,
        server: &ServerName,
        instance: &InstanceName,
    ) -> Option<(Arc<Server>, Arc<Instance>)> {
        let current = self.servers.get(server.as_str()).into_iter();
        let former = self.former.iter().rev().filter(|known| known.id == *server);
        current.chain(former).find_map(|known| {
            let instance = known.instance(instance)?;
            Some((Arc::clone(known), Arc::clone(instance)))
        })
    }
}

impl SessionRouter {
    /// The configured servers.
    #[must_use]
    pub fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.0.configuration.load().servers)
    }

    /// The limits of the sessions of one principal.
    #[must_use]
    pub fn session_limits(&self) -> SessionLimits {
        self.0.configuration.load().limits
    }

    /// The instance that a record names, and its server; also one that is no longer configured, if it was since this
    /// gateway began.
    #[must_use]
    pub fn named_instance(
        &self,
        server: &ServerName,
        instance: &InstanceName,
    ) -> Option<(Arc<Server>, Arc<Instance>)> {
        self.0.configuration.load().instance(server, instance)
    }

    /// Replaces the servers and limits. Requests under way keep the server that they began with.
    pub fn configure(&self, servers: Arc<Servers>, limits: SessionLimits) {
        self.0
            .configuration
            .rcu(|present| present.next(Arc::clone(&servers), limits));
    }
}
