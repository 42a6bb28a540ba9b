//! Which of the workers that something was passed on to are counted as dead: replies of theirs are waited for no longer.
//!
//! A worker whose machine stands still closes no connection. What its peers wait for from it would never end by itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mooring_session::names::WorkerId;
use tokio_util::sync::CancellationToken;

use super::Affinity;

/// The workers that are waited for, and who is to be told of their death.
#[derive(Debug, Default)]
pub(super) struct Deaths(Mutex<HashMap<WorkerId, CancellationToken>>);

impl Deaths {
    /// Cancelled when the worker is counted as dead.
    pub(super) fn of(&self, worker: &WorkerId) -> CancellationToken {
        let mut waited_for = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waited_for.entry(worker.clone()).or_default().clone()
    }

    fn is_empty(&self) -> bool {
        let waited_for = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waited_for.is_empty()
    }

    /// Tells the deaths of all but these. A run of a worker that is dead never lives again under the same name, but for one
    /// that was frozen: then nobody waits for what it was asked before.
    fn tell_all_but(&self, living: &[WorkerId]) {
        let mut waited_for = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waited_for.retain(|worker, death| {
            let lives = living.contains(worker);
            if !lives {
                tracing::warn!(%worker, "a worker that was asked is counted as dead; its replies are waited for no longer");
                death.cancel();
            }
            lives
        });
    }
}

/// Looks every `interval` for the deaths of workers that are waited for, until it is stopped.
pub async fn watch_owners(affinity: Affinity, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if affinity.owned().deaths.is_empty() {
            continue;
        }
        // While the store is away nobody is known to be dead.
        if affinity.store().is_degraded() {
            continue;
        }
        match affinity.store().workers().await {
            Ok(workers) => {
                let living: Vec<WorkerId> = workers
                    .into_iter()
                    .filter(|worker| worker.alive)
                    .map(|worker| worker.worker)
                    .collect();
                affinity.owned().deaths.tell_all_but(&living);
            }
            Err(error) => {
                tracing::debug!(%error, "the store was not asked who lives");
            }
        }
    }
}
