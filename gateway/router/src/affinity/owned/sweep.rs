//! Sweeping: closes connections that this gateway has and no longer owns.
//!
//! If a session ended at another gateway, expired, or was taken over while this gateway was cut off, its connection
//! stays here. The gateway that ended it reports that if it can; the sweep finds the rest.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use mooring_session::Refusal;
use mooring_session::record::SessionState;

use super::SessionRouter;
use super::connection_table::{ConnectionKey, OwnedConnection};
use mooring_store::{OwnerChange, StoreError};

/// Interval of sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Most concurrent queries to the store.
const AT_ONCE: usize = 16;

/// Sweeps this gateway's connections until it is stopped.
pub async fn sweep_owned(router: SessionRouter) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        router.close_connections_not_owned().await;
    }
}

impl SessionRouter {
    /// Asks the store about every connection here, and closes those that this gateway does not own. Returns whether the
    /// store answered for all of them.
    pub async fn close_connections_not_owned(&self) -> bool {
        stream::iter(self.owned_connections().table.all())
            .map(|(connection_key, held)| async move {
                self.is_still_owned(&connection_key, &held).await
            })
            .buffer_unordered(AT_ONCE)
            .all(|was_asked| async move { was_asked })
            .await
    }

    async fn is_still_owned(&self, connection_key: &ConnectionKey, held: &OwnedConnection) -> bool {
        let found = self.store().get(&connection_key.key).await;
        // The fallback of an unreachable store knows no owners.
        if self.store().is_degraded() {
            return false;
        }
        let record = match found {
            Ok(record) => Some(record),
            Err(StoreError::Refused(Refusal::NoSession | Refusal::Ended)) => None,
            Err(_) => return false,
        };
        let is_owned = record.is_some_and(|record| {
            record.state == SessionState::Active
                && record.bindings.iter().any(|binding| {
                    binding.server == connection_key.server
                        && binding.epoch == held.epoch
                        && (binding.owner.as_ref()).is_some_and(|owner| self.is_owner(owner))
                })
        });
        if !is_owned {
            tracing::info!(
                session = %connection_key.key.digest(),
                server = %connection_key.server,
                epoch = held.epoch,
                "closed a connection that this gateway no longer owns"
            );
            let change = match self.owned_connections().fence().is_open() {
                true => OwnerChange::Closed,
                false => OwnerChange::Fenced,
            };
            let (session, server) = (connection_key.key.digest(), &connection_key.server);
            self.note_owner(
                &session,
                server,
                held.epoch,
                change,
                Some("no longer owned"),
            );
            self.owned_connections().close(connection_key, held.epoch);
        }
        true
    }
}
