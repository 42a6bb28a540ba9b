//! Sweeping: what this worker holds and does not own any more is closed.
//!
//! A session that ended at another worker, expired, or was taken over while this worker was cut off leaves its connection
//! here; whoever ended it says so where it can, and this finds the rest.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use mooring_session::Refusal;
use mooring_session::record::Standing;

use super::SessionRouter;
use super::connection_table::{ConnectionKey, OwnedConnection};
use mooring_store::StoreError;

/// Between two looks at everything that is held.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Most sessions asked for at the same time.
const AT_ONCE: usize = 16;

/// Looks after what this worker holds, until it is stopped.
pub async fn sweep_owned(router: SessionRouter) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        router.close_connections_not_owned().await;
    }
}

impl SessionRouter {
    /// Asks the store about every connection that is held here, and closes those that it does not name this worker's.
    /// Answers whether the store was asked about all of them.
    pub async fn close_connections_not_owned(&self) -> bool {
        stream::iter(self.owned_connections().table.all())
            .map(|(place, held)| async move { self.is_still_owned(&place, &held).await })
            .buffer_unordered(AT_ONCE)
            .all(|was_asked| async move { was_asked })
            .await
    }

    async fn is_still_owned(&self, place: &ConnectionKey, held: &OwnedConnection) -> bool {
        let found = self.store().get(&place.key).await;
        // What stands in for the store while that is away knows of no owner.
        if self.store().is_degraded() {
            return false;
        }
        let record = match found {
            Ok(record) => Some(record),
            Err(StoreError::Refused(Refusal::NoSession | Refusal::Ended)) => None,
            Err(_) => return false,
        };
        let is_owned = record.is_some_and(|record| {
            record.standing == Standing::Active
                && record.bindings.iter().any(|binding| {
                    binding.server == place.server
                        && binding.epoch == held.epoch
                        && (binding.owner.as_ref()).is_some_and(|owner| self.is_owner(owner))
                })
        });
        if !is_owned {
            tracing::info!(
                session = %place.key.digest(),
                server = %place.server,
                epoch = held.epoch,
                "a connection that this worker does not own any more is closed"
            );
            self.owned_connections().close(place, held.epoch);
        }
        true
    }
}
