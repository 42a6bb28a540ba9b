//! The servers and limits of a router, and their replacement.
//!
//! Invariant: requests under way keep the server that they began with.

use std::sync::Arc;

use mooring_session::names::{InstanceName, ServerName};

use super::SessionRouter;
use super::configuration::{RoutedServers, SessionLimits};
use super::owned::Connector;
use mooring_upstream::{Instance, Server, Servers};

impl SessionRouter {
    /// The configured servers.
    #[must_use]
    pub fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.0.configuration.load().present.servers)
    }

    /// The connector of the configured server of this id; none if its connections are not owned.
    #[must_use]
    pub fn connector(&self, server: &ServerName) -> Option<Arc<Connector>> {
        let configuration = self.0.configuration.load();
        configuration.present.connectors.get(server).cloned()
    }

    /// The connector of the server that a message began with.
    pub(super) fn connector_of(&self, server: &Server) -> Option<Arc<Connector>> {
        self.0.configuration.load().connector_of(server)
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
    pub fn configure(&self, servers: &RoutedServers, limits: SessionLimits) {
        self.0
            .configuration
            .rcu(|present| present.next(servers.clone(), limits));
    }
}
