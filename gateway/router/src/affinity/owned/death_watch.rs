//! Watches the peers to which messages were forwarded, and ends the wait for a reply when the store counts the peer as
//! dead.
//!
//! A peer on a frozen machine closes no connection, so the wait for its reply would never end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mooring_session::names::WorkerId;
use tokio_util::sync::CancellationToken;

use super::SessionRouter;

/// The watched peers, each while a [`DeathWatch`] of it exists.
#[derive(Debug, Default)]
pub(super) struct DeathWatches(Mutex<HashMap<WorkerId, Weak<CancellationToken>>>);

/// Resolves when a peer counts as dead.
#[derive(Clone, Debug)]
pub(super) struct DeathWatch(Arc<CancellationToken>);

impl DeathWatch {
    /// Returns when the peer counts as dead.
    pub(super) async fn counted_dead(self) {
        self.0.cancelled().await;
    }
}

impl DeathWatches {
    /// Starts watching this peer.
    pub(super) fn of(&self, worker: &WorkerId) -> DeathWatch {
        let mut waited_for = self.lock();
        if let Some(death) = waited_for.get(worker).and_then(Weak::upgrade) {
            return DeathWatch(death);
        }
        let death = Arc::new(CancellationToken::new());
        waited_for.insert(worker.clone(), Arc::downgrade(&death));
        DeathWatch(death)
    }

    /// Whether any peer is watched.
    fn is_any_watched(&self) -> bool {
        let mut waited_for = self.lock();
        waited_for.retain(|_, death| death.strong_count() > 0);
        !waited_for.is_empty()
    }

    /// Reports all watched peers except these as dead. A worker id that was dead returns only if its process was
    /// frozen, and then its earlier replies are not awaited any more.
    fn report_dead_except(&self, living: &[WorkerId]) {
        self.lock().retain(|worker, death| {
            let lives = living.contains(worker);
            if let (false, Some(death)) = (lives, death.upgrade()) {
                tracing::warn!(%worker, "a peer counts as dead; its replies are no longer awaited");
                death.cancel();
            }
            lives
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, Weak<CancellationToken>>> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks every `interval` whether watched peers have died, until it is stopped.
pub async fn watch_owners(router: SessionRouter, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        // While the store is unreachable, no death is known.
        if router.store().is_degraded()
            || !router.owned_connections().death_watches.is_any_watched()
        {
            continue;
        }
        match router.store().workers().await {
            Ok(workers) => {
                let living: Vec<WorkerId> = workers
                    .into_iter()
                    .filter(|worker| worker.alive)
                    .map(|worker| worker.worker)
                    .collect();
                router
                    .owned_connections()
                    .death_watches
                    .report_dead_except(&living);
            }
            Err(error) => {
                tracing::debug!(%error, "failed to list the live gateways");
            }
        }
    }
}
