//! Hands over the connections of a gateway that drains, as soon as they are idle and another gateway is there to take them.
//!
//! A binding that was used gets a claim without an owner that lapses at once: the session's next message, at whichever
//! gateway, moves it like any lost binding, and reports the loss. One that was never used is undone. Invariant: nothing is
//! handed over during a call: the connection decides whether it is idle, and refuses every later message.

use std::time::Duration;

use mooring_delivery::Loss;
use mooring_session::limits::LEASE_MIN;
use mooring_session::rules::{LossReport, Ownership, RebindRequest};
use mooring_session::view::{BindingView, OwnerView};
use mooring_session::workers::Drain;
use mooring_store::{StoreError, WorkerView, fresh_token};
use tokio::time::sleep;

use super::super::Session;
use super::SessionRouter;
use super::connection_table::{ConnectionKey, OwnedConnection};
use crate::departure::DeparturePhase;
use mooring_upstream::Server;
use mooring_upstream::connection::{Activity, IdleLimits};

/// Interval of looks for idle connections while the gateway drains.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a connection has been idle that is handed over: the client of a new one calls it within this time.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// Hands over idle connections whenever this gateway drains, until it is dropped. A gateway that stops closes them itself.
pub async fn hand_over_owned(router: SessionRouter) {
    let mut departure = router.departure().watch();
    loop {
        let drains = departure.wait_for(|phase| *phase == DeparturePhase::Draining);
        if drains.await.is_err() {
            return;
        }
        if !router.departure().is_stopping() {
            router.hand_over_idle().await;
        }
        sleep(LOOK_EVERY).await;
    }
}

impl SessionRouter {
    async fn hand_over_idle(&self) {
        let connections = self.owned_connections().table.all();
        if connections.is_empty() || !self.has_successor().await {
            return;
        }
        for (connection_key, held) in connections {
            let activity = held.connection.activity();
            let is_due = match activity {
                Activity::Idle { since } => since.elapsed() >= IDLE_FOR,
                Activity::Stopped => true,
                Activity::Busy => false,
            };
            if !is_due {
                continue;
            }
            let limits = IdleLimits::all(IDLE_FOR);
            if activity != Activity::Stopped
                && !self.stop(&connection_key, &held, limits, "draining").await
            {
                continue;
            }
            match self.release_binding(&connection_key, &held).await {
                Ok(()) => self.owned_connections().close(&connection_key, held.epoch),
                // It is tried again.
                Err(error) => {
                    tracing::info!(session = %connection_key.key.digest(), server = %connection_key.server, %error, "binding not handed over");
                }
            }
        }
    }

    /// Whether another gateway takes on what this one hands over. Otherwise its sessions would be served by none.
    async fn has_successor(&self) -> bool {
        let workers = self.store().workers().await;
        workers.is_ok_and(|workers| workers.iter().any(|other| self.is_successor(other)))
    }

    fn is_successor(&self, other: &WorkerView) -> bool {
        other.alive && other.drain == Drain::Serving && other.worker != *self.worker()
    }

    /// Lets another gateway move a lost binding, because this one drains and may own nothing new. Returns whether one was
    /// asked: what it has done is in the store.
    pub(in super::super) async fn move_to_peer(
        &self,
        session: &Session,
        server: &Server,
        epoch: u64,
    ) -> bool {
        let mut peers = self.store().workers().await.unwrap_or_default();
        peers.retain(|other| self.is_successor(other));
        if peers.is_empty() {
            return false;
        }
        let peer = peers.swap_remove(rand::random_range(0..peers.len()));
        let peer = OwnerView {
            worker: peer.worker,
            alive: true,
            address: Some(peer.address.as_str().into()),
        };
        self.renew_at_owner(&peer, session, server, epoch).await;
        true
    }

    /// Closes the connection of a binding that operators move while this gateway drains, and gives the binding up: this
    /// gateway may own nothing new.
    pub(super) async fn give_up(
        &self,
        connection_key: &ConnectionKey,
        epoch: u64,
    ) -> Result<(), StoreError> {
        if let Ok(connection) = self.owned_connections().table.get(connection_key, epoch) {
            let held = OwnedConnection { epoch, connection };
            self.release_binding(connection_key, &held).await?;
            self.owned_connections().close(connection_key, epoch);
        }
        Ok(())
    }

    /// The same, and lets another gateway take the binding.
    pub(in super::super) async fn give_up_to_peer(
        &self,
        session: &Session,
        server: &Server,
        epoch: u64,
    ) -> Result<(), StoreError> {
        let connection_key = ConnectionKey {
            key: session.key.clone(),
            server: server.id.clone(),
        };
        self.give_up(&connection_key, epoch).await?;
        self.move_to_peer(session, server, epoch).await;
        Ok(())
    }

    /// Gives the binding up, so that any gateway may move it.
    async fn release_binding(
        &self,
        connection_key: &ConnectionKey,
        held: &OwnedConnection,
    ) -> Result<(), StoreError> {
        let record = match self.store().get(&connection_key.key).await {
            Ok(record) => record,
            Err(StoreError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_it = |binding: &&BindingView| {
            binding.server == connection_key.server && binding.epoch == held.epoch
        };
        let Some(binding) = record.bindings.iter().find(is_it) else {
            return Ok(());
        };
        let request = RebindRequest {
            principal: record.principal.clone(),
            server: connection_key.server.clone(),
            epoch: held.epoch,
            worker: self.worker().clone(),
            token: fresh_token().map_err(mooring_session::Refusal::Argument)?,
            lease: LEASE_MIN,
            instances: vec![binding.instance.clone()],
            avoid: None,
            reason: Loss::OwnerDrained.reason(),
            upstream_session: None,
            ownership: Ownership::Shared,
            report: LossReport::ByNextCall,
        };
        self.delegations()
            .recall(&connection_key.key, &connection_key.server);
        match self.store().rebind(&connection_key.key, &request).await {
            Ok(_) => {
                tracing::info!(session = %connection_key.key.digest(), server = %connection_key.server, epoch = held.epoch, "binding handed over to the gateway that needs it next");
                Ok(())
            }
            Err(StoreError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
