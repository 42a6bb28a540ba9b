//! Owned connections, which exist in one gateway only: this gateway serves its own and forwards messages to other
//! owners.
//!
//! Invariants: a message is sent only over the connection of the epoch that the store named for it; a gateway whose
//! heartbeat has not reached the store for a while uses no connection, so that a new owner never coexists with the old
//! one.

mod connect;
mod connection_table;
mod connector;
mod death_watch;
mod fence;
mod figures;
mod forward;
mod hand_over;
mod idle;
mod serve;
mod stop;
mod sweep;

use std::fmt;
use std::time::Duration;

use mooring_session::rules::Ownership;
use mooring_session::view::{BindingView, OwnerView};

pub use connect::ConnectionSettings;
pub use connection_table::ConnectionKey;
pub use connector::Connector;
pub use death_watch::watch_owners;
pub use fence::BeatTime;
pub(crate) use fence::Fence;
pub use hand_over::hand_over_owned;
pub use idle::stop_idle_processes;
pub use sweep::sweep_owned;

use self::connection_table::ConnectionTable;
use self::death_watch::DeathWatches;
use self::stop::OwnedAdmission;
use super::{Session, SessionRouter};
use mooring_peers::PeerClient;
use mooring_protocol::Reply;
use mooring_upstream::{InstanceTransport, Outgoing, ReplySource, SendError, Server};

/// What this gateway owns, and its client for peers.
pub struct OwnedConnections {
    table: ConnectionTable,
    death_watches: DeathWatches,
    fence: Fence,
    options: ConnectionSettings,
    peers: Option<PeerClient>,
    admission: OwnedAdmission,
}

impl fmt::Debug for OwnedConnections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Owned({} connections)", self.count())
    }
}

impl OwnedConnections {
    /// No connections yet. Without `peers`, connections of other gateways cannot be reached.
    #[must_use]
    pub fn new(options: ConnectionSettings, beat_ttl: Duration, peers: Option<PeerClient>) -> Self {
        Self {
            table: ConnectionTable::default(),
            death_watches: DeathWatches::default(),
            fence: Fence::new(beat_ttl),
            options,
            peers,
            admission: OwnedAdmission::default(),
        }
    }

    /// Whether this gateway may use what it owns.
    #[must_use]
    pub const fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Closes the connection of this binding, if it is here. Does not wait for the server's shutdown.
    pub fn close(&self, connection_key: &ConnectionKey, epoch: u64) {
        self.table.close(connection_key, epoch);
    }

    /// The number of connections of this gateway.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Serves a message over a connection of this gateway.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(super) async fn serve_here(
        &self,
        connection_key: &ConnectionKey,
        epoch: u64,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        // Kept until the connection has accepted the message and counts it itself.
        let _admitted = self.admission.admit(outgoing)?;
        if !self.fence.is_open() {
            return Err(SendError::OwnerUnavailable(
                "it has not reached the store for a while".into(),
            ));
        }
        self.table.get(connection_key, epoch)?.serve(outgoing).await
    }
}

impl SessionRouter {
    /// Sends a message over a session's binding: to the instance, or to the connection that a gateway owns.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        match server.ownership {
            Ownership::Owned => Box::pin(self.send_owned(session, server, binding, outgoing)).await,
            Ownership::Shared => match server.instance(&binding.instance) {
                Some(instance) => self.client().send(instance, outgoing).await,
                // Resolving moves a binding whose instance is no longer configured.
                None => Err(SendError::Elsewhere),
            },
        }
    }

    /// Where the replies over a binding come from. A connection that a gateway owns has none beside itself.
    pub(crate) fn reply_source<'a>(
        &'a self,
        server: &'a Server,
        binding: &BindingView,
    ) -> impl ReplySource + use<'a> {
        let instance = server.instance(&binding.instance);
        instance.map(|instance| InstanceTransport {
            client: self.client(),
            instance,
        })
    }

    /// Sends a probe of the gateway after a break; to an instance over a new connection.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_fresh(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        match (server.ownership, server.instance(&binding.instance)) {
            (Ownership::Shared, Some(instance)) => {
                self.client().send_fresh(instance, outgoing).await
            }
            (Ownership::Shared, None) | (Ownership::Owned, _) => {
                self.send(session, server, binding, outgoing).await
            }
        }
    }

    async fn send_owned(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        let connection_key = ConnectionKey::of(session, server);
        match &binding.owner {
            Some(owner) if owner.worker == *self.worker() => {
                self.owned_connections()
                    .serve_here(&connection_key, binding.epoch, outgoing)
                    .await
            }
            Some(owner) => {
                let principal = &session.principal;
                self.forward_message(owner, &connection_key, principal, binding.epoch, outgoing)
                    .await
            }
            None => Err(SendError::Elsewhere),
        }
    }

    /// Whether this gateway owns the connection of a binding.
    pub(super) fn is_owner(&self, owner: &OwnerView) -> bool {
        owner.worker == *self.worker()
    }
}
