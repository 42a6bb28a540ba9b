//! The reaper of code sessions: directories of sessions that are over go to the trash, and then are deleted, by whichever
//! worker comes first.
//!
//! The store names sessions that expired or ended; one worker at a time has each (CLAIM), moves its directory away under
//! the session's lock, and drops the tombstone of exactly that incarnation (FORGET). As a backstop, for records that the
//! store has lost, directories that nobody used for twice their time to live are swept without it.
//!
//! Invariant: neither a directory in use nor one that a later incarnation has taken over is moved; the volume sees to
//! that under the lock. A worker that dies at any step is followed by another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use rand::seq::SliceRandom;
use tokio::task::spawn_blocking;

use super::place::CodePlace;
use super::server::{CodeStorage, Services};
use super::volume::{RetireOutcome, Volume, unix_now_ms};
use mooring_metrics::{self as metrics, SessionRetired};
use mooring_router::affinity::{ForgetOutcome, jittered};
use mooring_store::{Family, SessionKey, StoreError};

/// Most tombstones asked for at once.
const BATCH: usize = 100;
/// Most directories moved away at the same time.
const AT_ONCE: usize = 4;
/// How long a tombstone is this worker's to clean. A worker that was killed is followed by another after it.
const LEASE: Duration = Duration::from_secs(15);
/// How long a directory in use, or one that could not be moved, is left alone.
const PAUSE: Duration = Duration::from_secs(5);
/// Most things deleted from the trash in one go: a pass must end.
const TRASH_BATCH: usize = 1_000;
/// Sweeps per time to live.
const SWEEPS_PER_TTL: u32 = 2;
/// The shortest pause between two sweeps.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Looks for tombstones and cleans up after them, until it is stopped. The pauses between two looks are `interval`, give
/// or take a quarter.
pub async fn reap(services: Arc<Services>, interval: Duration) {
    let Ok(CodeStorage { volume, .. }) = &services.storage else {
        return;
    };
    let reaper = Reaper {
        services: &services,
        volume,
    };
    let mut was_asked = true;
    loop {
        tokio::time::sleep(jittered(interval)).await;
        match reaper.pass().await {
            Ok(()) => was_asked = true,
            // One line for a whole outage: the store's own state is logged where it changes.
            Err(error) if was_asked => {
                was_asked = false;
                tracing::info!(%error, "expired-session scan failed");
            }
            Err(_) => {}
        }
        empty_trash(volume).await;
    }
}

/// Sweeps what no store tells of, until it is stopped.
pub async fn sweep(services: Arc<Services>) {
    let Ok(CodeStorage { volume, .. }) = &services.storage else {
        return;
    };
    let interval = (services.session_ttl_max / SWEEPS_PER_TTL).max(SWEEP_INTERVAL_MIN);
    loop {
        tokio::time::sleep(jittered(interval)).await;
        let swept = {
            let volume = volume.clone();
            spawn_blocking(move || volume.sweep(unix_now_ms())).await
        };
        match swept {
            Ok(Ok(swept)) => {
                metrics::code_session_retired(SessionRetired::Swept, swept.sessions);
                if swept.sessions > 0 || swept.failed > 0 {
                    tracing::info!(?swept, "unused directories swept");
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "volume sweep failed"),
            Err(error) => tracing::error!(%error, "volume sweep task failed"),
        }
        empty_trash(volume).await;
    }
}

struct Reaper<'a> {
    services: &'a Services,
    volume: &'a Volume,
}

impl Reaper<'_> {
    /// Cleans what there is, batch by batch, for as long as batches are full and some of them was this worker's to do.
    async fn pass(&self) -> Result<(), StoreError> {
        loop {
            let affinity = &self.services.affinity;
            let mut keys = affinity
                .store()
                .reap(affinity.worker(), Family::Code, BATCH)
                .await?;
            let is_full = keys.len() >= BATCH;
            // Workers that look at the same time are named the same sessions; in different orders they share them.
            keys.shuffle(&mut rand::rng());
            let outcomes: Vec<Option<SessionRetired>> = stream::iter(keys)
                .map(|key| async move { self.clean(&key).await })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            for outcome in outcomes.iter().flatten() {
                metrics::code_session_retired(*outcome, 1);
            }
            if !is_full || outcomes.iter().all(Option::is_none) {
                return Ok(());
            }
        }
    }

    /// None where another worker has the tombstone, or the store could not be asked.
    async fn clean(&self, key: &SessionKey) -> Option<SessionRetired> {
        let record = self.services.affinity.claim(key, LEASE).await.ok()?;
        let prefix = &self.services.affinity.options().key_prefix;
        let place = CodePlace::of_key(prefix, key.secret(), &record.id, &record.principal);
        let retired = match place {
            Some(place) => self.retire(place, record.generation).await,
            // A record that was made by hand, and that names no directory.
            None => Some(RetireOutcome::Absent),
        };
        match retired {
            Some(RetireOutcome::Moved | RetireOutcome::Absent | RetireOutcome::TakenOver) => {
                // What its code held at other servers.
                if !self.services.affinity.delete_all_held(key, &record).await {
                    self.leave_alone(key).await;
                    return Some(SessionRetired::Failed);
                }
                match self.services.affinity.forget(key, record.generation).await {
                    ForgetOutcome::Now => Some(SessionRetired::Cleaned),
                    ForgetOutcome::Elsewhere => Some(SessionRetired::Stale),
                    // Whoever cleans it next finds that there is nothing left.
                    ForgetOutcome::NotAsked => None,
                }
            }
            Some(RetireOutcome::InUse) => {
                self.leave_alone(key).await;
                Some(SessionRetired::InUse)
            }
            None => {
                self.leave_alone(key).await;
                Some(SessionRetired::Failed)
            }
        }
    }

    /// Keeps the tombstone from everybody for a while.
    async fn leave_alone(&self, key: &SessionKey) {
        // What fails here, the present lease mends sooner.
        let _ = self.services.affinity.claim(key, PAUSE).await;
    }

    async fn retire(&self, place: CodePlace, generation: u64) -> Option<RetireOutcome> {
        let volume = self.volume.clone();
        let digest = place.digest();
        match spawn_blocking(move || volume.retire(&place, generation)).await {
            Ok(Ok(retired)) => Some(retired),
            Ok(Err(error)) => {
                tracing::warn!(session = %digest, %error, "directory of an ended session not moved to the trash");
                None
            }
            Err(error) => {
                tracing::error!(session = %digest, %error, "session cleanup task failed");
                None
            }
        }
    }
}

async fn empty_trash(volume: &Volume) {
    let volume = volume.clone();
    match spawn_blocking(move || volume.empty_trash(TRASH_BATCH)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "emptying the trash failed"),
        Err(error) => tracing::error!(%error, "trash task failed"),
    }
}
