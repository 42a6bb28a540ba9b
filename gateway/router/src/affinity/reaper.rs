//! The reaper of MCP sessions: what expired or ended sessions still hold upstream is deleted there.
//!
//! Invariant: an instance that does not answer is asked less and less often; its tombstones stay until it does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mooring_session::view::RecordView;

use super::SessionRouter;
use super::cleaning::{CleanupResult, DELETED_WITHIN};
use super::pauses::Pauses;
use mooring_metrics::{self as metrics, ReapOutcome};
use mooring_store::{Family, ForgetOutcome, Reaper, SessionKey};

/// How long a tombstone is put off where an instance answered a DELETE with an error: that says something of the one
/// session, and nothing of the others that the instance has.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How long a tombstone is this gateway's to clean. If the gateway is killed, another follows after it.
const LEASE: Duration = Duration::from_secs(15);

const _: () = assert!(DELETED_WITHIN.as_millis() < LEASE.as_millis());

/// Cleans up after MCP sessions, until it is stopped. The pauses between two passes are `interval`, give or take a
/// quarter.
pub async fn reap(router: SessionRouter, interval: Duration) {
    let (store, worker) = (router.store().clone(), router.worker().clone());
    let reaper = UpstreamReaper {
        router,
        pauses: Pauses::default(),
        cleaned: AtomicUsize::new(0),
    };
    store.reap_all(&worker, &reaper, interval).await;
}

struct UpstreamReaper {
    router: SessionRouter,
    pauses: Pauses,
    /// How many sessions this pass has cleaned.
    cleaned: AtomicUsize,
}

impl Reaper for UpstreamReaper {
    const FAMILY: Family = Family::Mcp;
    const AT_ONCE: usize = 16;

    async fn clean(&self, key: SessionKey) -> bool {
        let (store, worker) = (self.router.store(), self.router.worker());
        let Ok(record) = store.claim_tombstone(worker, &key, LEASE).await else {
            return false;
        };
        let started = Instant::now();
        self.router.drop_own_params(&record).await;
        let cleanup = self
            .router
            .delete_held(&key, &record, |binding| {
                let place = (binding.server.clone(), binding.instance.clone());
                binding.upstream_session.is_some() && self.pauses.is_paused(&place, started)
            })
            .await;
        self.note_answers(&record, &cleanup);
        let reaped = if cleanup.is_undone() {
            self.put_off(&key, &cleanup).await;
            ReapOutcome::PutOff
        } else {
            match store
                .forget_tombstone(worker, &key, record.generation)
                .await
            {
                ForgetOutcome::Now if cleanup.unconfigured > 0 => ReapOutcome::Unconfigured,
                ForgetOutcome::Now => {
                    self.cleaned.fetch_add(1, Ordering::Relaxed);
                    ReapOutcome::Cleaned
                }
                ForgetOutcome::Elsewhere => ReapOutcome::Stale,
                ForgetOutcome::NotAsked => return false,
            }
        };
        metrics::session_reaped(reaped);
        tracing::debug!(session = %key.digest(), outcome = reaped.as_str(), "tombstone cleaned");
        true
    }

    async fn finish_pass(&self) {
        let sessions = self.cleaned.swap(0, Ordering::Relaxed);
        if sessions > 0 {
            tracing::info!(
                sessions,
                "what expired or ended sessions held upstream was deleted"
            );
        }
    }
}

impl UpstreamReaper {
    fn note_answers(&self, record: &RecordView, cleanup: &CleanupResult) {
        for binding in &record.bindings {
            let place = (binding.server.clone(), binding.instance.clone());
            if binding.upstream_session.is_some() && !cleanup.unanswered.contains(&place) {
                self.pauses.answered(&place);
            }
        }
    }

    /// Leaves the tombstone alone, and keeps the fleet from it, for as long as the instance is left alone that has been
    /// asked in vain for longest. It is tried again until the store drops it at its end.
    async fn put_off(&self, key: &SessionKey, cleanup: &CleanupResult) {
        let now = Instant::now();
        let pauses = cleanup
            .unanswered
            .iter()
            .map(|place| self.pauses.unanswered(place, now));
        let refused = (cleanup.refused > 0).then_some(REFUSED_PAUSE);
        if let Some(longest) = pauses.chain(refused).max() {
            // What fails here, the present lease mends sooner.
            let (store, worker) = (self.router.store(), self.router.worker());
            let _ = store.claim_tombstone(worker, key, longest).await;
        }
    }
}
