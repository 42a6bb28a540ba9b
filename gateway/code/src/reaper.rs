//! The reaper of code sessions: the directories of expired and ended sessions go to the trash, and then are deleted.
//!
//! A gateway that has claimed a tombstone moves the session's directory away under its lock. As a backstop, for records
//! that the store has lost, directories that were not used for twice their time to live are swept without it.
//!
//! Invariant: neither a directory in use nor one that a later incarnation has taken over is moved; the volume checks that
//! under the lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::place::CodePlace;
use super::server::{CodeStorage, Services};
use super::volume::{RetireOutcome, Volume};
use mooring_metrics::{self as metrics, SessionRetired};
use mooring_store::{
    Family, ForgetOutcome, HistoryEvent, Reaper, SessionAccess, SessionKey, jittered, unix_now_ms,
};

/// How long a tombstone is this gateway's to clean. If the gateway is killed, another follows after it.
const LEASE: Duration = Duration::from_secs(15);
/// How long a directory in use, or one that could not be moved, is left alone.
const PAUSE: Duration = Duration::from_secs(5);
/// Most things deleted from the trash in one go: a pass must end.
const TRASH_BATCH: usize = 1_000;
/// Sweeps per time to live.
const SWEEPS_PER_TTL: u32 = 2;
/// The shortest pause between two sweeps.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Cleans up after code sessions, until it is stopped. The pauses between two passes are `interval`, give or take a
/// quarter.
pub async fn reap(services: Arc<Services>, interval: Duration) {
    let Ok(CodeStorage { volume, .. }) = &services.storage else {
        return;
    };
    let sessions = &*services.sessions;
    let reaper = CodeReaper { sessions, volume };
    let (store, worker) = (sessions.store(), sessions.worker());
    store.reap_all(worker, &reaper, interval).await;
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

struct CodeReaper<'a> {
    sessions: &'a dyn SessionAccess,
    volume: &'a Volume,
}

impl Reaper for CodeReaper<'_> {
    const FAMILY: Family = Family::Code;
    const AT_ONCE: usize = 4;

    async fn clean(&self, key: SessionKey) -> bool {
        let (store, worker) = (self.sessions.store(), self.sessions.worker());
        let Ok(record) = store.claim_tombstone(worker, &key, LEASE).await else {
            return false;
        };
        let outcome = match CodePlace::of_key(&key, &record.id, &record.principal) {
            Some(place) => self.retire(place, record.generation).await,
            // A record that was made by hand, and that names no directory.
            None => Some(RetireOutcome::Absent),
        };
        let outcome = match outcome {
            Some(RetireOutcome::InUse) => SessionRetired::InUse,
            None => SessionRetired::Failed,
            // What its code held at other servers.
            Some(_) if !self.sessions.delete_held(&key, &record).await => SessionRetired::Failed,
            Some(_) => {
                let forgotten = store.forget_tombstone(worker, &key, record.generation);
                match forgotten.await {
                    ForgetOutcome::Now => SessionRetired::Cleaned,
                    ForgetOutcome::Elsewhere => SessionRetired::Stale,
                    ForgetOutcome::NotAsked => return false,
                }
            }
        };
        if matches!(outcome, SessionRetired::InUse | SessionRetired::Failed) {
            // Defers the next cleaning attempt. If this fails, the present lease ends sooner.
            let _ = store.claim_tombstone(worker, &key, PAUSE).await;
        }
        metrics::code_session_retired(outcome, 1);
        if outcome == SessionRetired::Cleaned {
            let outcome = "its files were deleted".into();
            store.note(&key.digest(), HistoryEvent::Cleaned { outcome });
        }
        true
    }

    async fn finish_pass(&self) {
        empty_trash(self.volume).await;
    }
}

impl CodeReaper<'_> {
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
