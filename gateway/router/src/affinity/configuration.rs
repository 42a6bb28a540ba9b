//! What a router takes from settings that can change while it runs: the servers, and the limits of sessions.
//!
//! Invariant: requests do not look up servers here; they bring the one that they began with. A server that is no longer
//! configured is kept for cleaning up: its instances are still told which upstream sessions have ended.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mooring_session::names::{InstanceName, ServerName};

use super::owned::Connector;
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

/// The connectors of servers whose connections one gateway owns.
type Connectors = HashMap<ServerName, Arc<Connector>>;

/// The servers, and how to connect to those whose connections one gateway owns. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RoutedServers {
    /// The servers.
    pub servers: Arc<Servers>,
    /// The connectors of those that need one.
    pub connectors: Arc<Connectors>,
}

impl Default for RoutedServers {
    fn default() -> Self {
        Self {
            servers: Arc::new(Servers::new(Vec::new())),
            connectors: Arc::default(),
        }
    }
}

/// The servers and limits of a router. Replaced as a whole.
#[derive(Debug)]
pub(super) struct RouterConfiguration {
    pub(super) present: RoutedServers,
    pub(super) limits: SessionLimits,
    /// Earlier definitions of servers, oldest first.
    former: Vec<FormerServer>,
}

/// A definition that was replaced or removed.
#[derive(Clone, Debug)]
struct FormerServer {
    server: Arc<Server>,
    connector: Option<Arc<Connector>>,
}

impl RouterConfiguration {
    /// The first one of a router.
    pub(super) fn new(present: RoutedServers, limits: SessionLimits) -> ArcSwap<Self> {
        ArcSwap::from_pointee(Self {
            present,
            limits,
            former: Vec::new(),
        })
    }

    /// The one that follows: servers that it has no longer, or defines otherwise, are former ones.
    pub(super) fn next(&self, next: RoutedServers, limits: SessionLimits) -> Self {
        let is_kept = |server: &&Arc<Server>| {
            let next = next.servers.get(server.id.as_str());
            next.is_some_and(|next| Arc::ptr_eq(next, server))
        };
        let replaced = self.present.servers.iter();
        let replaced = replaced.filter(|server| !is_kept(server));
        let mut former = self.former.clone();
        former.extend(replaced.map(|server| FormerServer {
            server: Arc::clone(server),
            connector: self.present.connectors.get(&server.id).cloned(),
        }));
        let excess = former.len().saturating_sub(FORMER_SERVERS_MAX);
        former.drain(..excess);
        Self {
            present: next,
            limits,
            former,
        }
    }

    /// The connector of exactly this definition of a server, which may be a former one.
    pub(super) fn connector_of(&self, server: &Server) -> Option<Arc<Connector>> {
        let mut former = self.former.iter();
        let former = former.find(|former| std::ptr::eq(&*former.server, server));
        match former {
            Some(former) => former.connector.clone(),
            None => self.present.connectors.get(&server.id).cloned(),
        }
    }

    /// The instance of this name, with the latest definition of its server that has it.
    pub(super) fn instance(
        &self,
        server: &ServerName,
        instance: &InstanceName,
    ) -> Option<(Arc<Server>, Arc<Instance>)> {
        let present = self.present.servers.get(server.as_str()).into_iter();
        let former = self.former.iter().rev().map(|former| &former.server);
        let former = former.filter(|former| former.id == *server);
        present.chain(former).find_map(|known| {
            let instance = known.instance(instance)?;
            Some((Arc::clone(known), Arc::clone(instance)))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use http::{HeaderMap, Uri};
    use mooring_session::rules::Ownership;

    use super::*;
    use mooring_settings::{Affinity, Concurrency, Continuity, LostStateNotice, OnUpstreamLoss};
    use mooring_upstream::SessionPolicy;

    fn name(text: &str) -> InstanceName {
        InstanceName::parse(text.as_bytes()).unwrap()
    }

    fn server(instances: &[&str]) -> Arc<Server> {
        let policy = SessionPolicy {
            affinity: Affinity::On,
            ownership: Ownership::Owned,
            concurrency: Concurrency::Serial,
            on_upstream_loss: OnUpstreamLoss::Reinitialize,
            lost_state_notice: LostStateNotice::Content,
            continuity: Continuity::None,
        };
        let instance = |text: &&str| Arc::new(Instance::new(name(text), Uri::default()));
        let instances = instances.iter().map(instance).collect();
        Arc::new(Server::new(id(), instances, policy, HeaderMap::new()))
    }

    fn id() -> ServerName {
        ServerName::parse(b"tools").unwrap()
    }

    fn routed(servers: &[&Arc<Server>]) -> RoutedServers {
        let connectors = servers
            .iter()
            .map(|server| (server.id.clone(), Arc::new(Connector::Sse)));
        RoutedServers {
            connectors: Arc::new(connectors.collect()),
            servers: Arc::new(Servers::new(
                servers.iter().map(|server| Arc::clone(server)).collect(),
            )),
        }
    }

    /// What is left of a server after it was changed and then removed.
    #[test]
    fn former_servers_are_known_for_cleaning_up_and_by_messages_under_way() {
        let (first, second) = (server(&["a", "b"]), server(&["b", "c"]));
        let limits = SessionLimits::default();
        let before = RouterConfiguration::new(routed(&[&first]), limits);
        let changed = before.load().next(routed(&[&second]), limits);
        let found = |configuration: &RouterConfiguration, instance: &str| {
            let (server, _) = configuration.instance(&id(), &name(instance))?;
            Some(Arc::ptr_eq(&server, &first))
        };
        assert_eq!(found(&changed, "a"), Some(true));
        assert_eq!(
            found(&changed, "b"),
            Some(false),
            "the present definition first"
        );
        assert_eq!(found(&changed, "d"), None);
        let (old, new) = (
            changed.connector_of(&first).unwrap(),
            changed.connector_of(&second).unwrap(),
        );
        assert!(!Arc::ptr_eq(&old, &new), "each has its own");

        let same = changed.next(routed(&[&second]), limits);
        assert_eq!(same.former.len(), 1, "one that stays is no former one");
        let removed = same.next(RoutedServers::default(), limits);
        assert_eq!(found(&removed, "c"), Some(false));
        assert!(removed.connector_of(&second).is_some());
    }
}
