//! Owned connections, which exist in one worker only: this worker serves its own, and forwards messages to other owners.
//!
//! Invariants: a message is sent over the connection of exactly the epoch that the store named for it; a worker whose
//! beat has not reached the store for a while uses no connection, so that a new owner never meets a second user.

mod connect;
mod connection_table;
mod death_watch;
mod fence;
mod forward;
mod idle;
mod serve;
mod stop;
mod sweep;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use mooring_session::names::ServerName;
use mooring_session::rules::Ownership;
use mooring_session::view::{BindingView, OwnerView};

pub use connect::{ConnectionSettings, Connector};
pub use connection_table::ConnectionKey;
pub use death_watch::watch_owners;
pub use fence::BeatTime;
pub(crate) use fence::Fence;
pub use idle::stop_idle_processes;
pub use sweep::sweep_owned;

use self::connection_table::ConnectionTable;
use self::death_watch::DeathWatches;
use self::stop::OwnedAdmission;
use super::{Session, SessionRouter};
use mooring_peers::PeerClient;
use mooring_protocol::Reply;
use mooring_upstream::{Outgoing, SendError, Server};

/// What this worker owns, and how it reaches what others own.
pub struct OwnedConnections {
    table: ConnectionTable,
    death_watches: DeathWatches,
    fence: Fence,
    dials: HashMap<ServerName, Connector>,
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
    /// Nothing yet. Without `peers` what other workers own cannot be reached.
    #[must_use]
    pub fn new(
        dials: HashMap<ServerName, Connector>,
        options: ConnectionSettings,
        beat_ttl: Duration,
        peers: Option<PeerClient>,
    ) -> Self {
        Self {
            table: ConnectionTable::default(),
            death_watches: DeathWatches::default(),
            fence: Fence::new(beat_ttl),
            dials,
            options,
            peers,
            admission: OwnedAdmission::default(),
        }
    }

    /// Whether this worker may use what it owns.
    #[must_use]
    pub const fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Closes the connection of this binding, where it is here. Its server ends in order, and nobody waits for that.
    pub fn close(&self, place: &ConnectionKey, epoch: u64) {
        self.table.close(place, epoch);
    }

    /// How many connections live here.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Serves a message at a connection that must live here.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(super) async fn serve_here(
        &self,
        place: &ConnectionKey,
        epoch: u64,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        // Kept until the connection has the message: from then on the connection counts it.
        let _admitted = self.admission.admit(outgoing)?;
        if !self.fence.is_open() {
            return Err(SendError::OwnerUnavailable(
                "it has not reached the store for a while".into(),
            ));
        }
        self.table.get(place, epoch)?.serve(outgoing).await
    }
}

impl SessionRouter {
    /// Sends a message over a session's binding: to the instance, or to the connection that a worker holds.
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
            Ownership::Owned => self.send_owned(session, server, binding, outgoing).await,
            Ownership::Shared => match server.instance(&binding.instance) {
                Some(instance) => self.client().send(instance, outgoing.to(instance)).await,
                // Settling moves a binding whose instance is not configured any more.
                None => Err(SendError::Elsewhere),
            },
        }
    }

    /// The same for a request of the gateway's own that asks after a break: an instance over a connection of its own.
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
                let request = outgoing.to(instance);
                self.client().send_fresh(instance, request).await
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
        let place = ConnectionKey::of(session, server);
        match &binding.owner {
            Some(owner) if owner.worker == *self.worker() => {
                self.owned_connections()
                    .serve_here(&place, binding.epoch, outgoing)
                    .await
            }
            Some(owner) => {
                let principal = &session.principal;
                self.forward_message(owner, &place, principal, binding.epoch, outgoing)
                    .await
            }
            None => Err(SendError::Elsewhere),
        }
    }

    /// Whether the connection of a binding is this worker's to renew.
    pub(super) fn is_owner(&self, owner: &OwnerView) -> bool {
        owner.worker == *self.worker()
    }
}
