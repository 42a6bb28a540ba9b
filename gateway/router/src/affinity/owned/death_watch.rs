//! Watches the workers to which messages were forwarded: a reply of one that is counted as dead is not awaited any longer.
//!
//! A worker on a frozen machine closes no connection, so a reply awaited from it would never end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mooring_session::names::WorkerId;
use tokio_util::sync::CancellationToken;

use super::SessionRouter;

/// The watched workers, each while a [`DeathWatch`] of it exists.
#[derive(Debug, Default)]
pub(super) struct DeathWatches(Mutex<HashMap<WorkerId, Weak<CancellationToken>>>);

/// Resolves when a worker is counted as dead.
#[derive(Clone, Debug)]
pub(super) struct DeathWatch(Arc<CancellationToken>);

impl DeathWatch {
    /// Returns when the worker is counted as dead.
    pub(super) async fn counted_dead(self) {
        self.0.cancelled().await;
    }
}

impl DeathWatches {
    /// A watch of this worker.
    pub(super) fn of(&self, worker: &WorkerId) -> DeathWatch {
        let mut waited_for = self.lock();
        if let Some(death) = waited_for.get(worker).and_then(Weak::upgrade) {
            return DeathWatch(death);
        }
        let death = Arc::new(CancellationToken::new());
        waited_for.insert(worker.clone(), Arc::downgrade(&death));
        DeathWatch(death)
    }

    /// Whether somebody waits for any of them.
    fn is_anybody_waited_for(&self) -> bool {
        let mut waited_for = self.lock();
        waited_for.retain(|_, death| death.strong_count() > 0);
        !waited_for.is_empty()
    }

    /// Tells the deaths of all but these. A run of a worker that is dead never lives again under the same name, but for one
    /// that was frozen: then nobody waits for what it was asked before.
    fn tell_all_but(&self, living: &[WorkerId]) {
        self.lock().retain(|worker, death| {
            let lives = living.contains(worker);
            if let (false, Some(death)) = (lives, death.upgrade()) {
                tracing::warn!(%worker, "a worker that was asked is counted as dead; its replies are waited for no longer");
                death.cancel();
            }
            lives
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, Weak<CancellationToken>>> {
        // The map is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks every `interval` for the deaths of workers that are waited for, until it is stopped.
pub async fn watch_owners(router: SessionRouter, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        // While the store is away nobody is known to be dead.
        if router.store().is_degraded()
            || !router
                .owned_connections()
                .death_watches
                .is_anybody_waited_for()
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
                    .tell_all_but(&living);
            }
            Err(error) => {
                tracing::debug!(%error, "the store was not asked who lives");
            }
        }
    }
}
