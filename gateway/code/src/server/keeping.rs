//! Looking after the records of all code servers, for as long as the process serves.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::WorkerId;

use super::{CodeStorage, Services};
use crate::records::{LiveGateways, keep};
use mooring_store::{Store, jittered};

/// Ends the records of runs that died with their worker, and removes old ones, until it is stopped.
pub async fn keep_records(services: Arc<Services>, interval: Duration) {
    let Ok(CodeStorage { records, .. }) = &services.storage else {
        return;
    };
    let living = StoreLiveGateways(services.sessions.store().clone());
    keep(records.clone(), services.ids.to_vec(), living, || {
        jittered(interval)
    })
    .await;
}

/// Reads the live gateways from the store.
struct StoreLiveGateways(Store);

impl LiveGateways for StoreLiveGateways {
    async fn list_live_gateways(&self) -> Option<Vec<WorkerId>> {
        let was_degraded = self.0.is_degraded();
        let workers = self.0.workers().await.ok()?;
        // What memory makes up while the store is away says nothing of the fleet.
        if was_degraded || self.0.is_degraded() {
            return None;
        }
        let living = workers.into_iter().filter(|worker| worker.alive);
        Some(living.map(|worker| worker.worker).collect())
    }
}
