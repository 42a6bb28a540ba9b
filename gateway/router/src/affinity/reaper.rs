//! The reaper of MCP sessions: deletes the upstream sessions of expired and ended sessions.
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

/// How long a tombstone is put off after an instance answered a DELETE with an error, which concerns only this session
/// and not the instance's others.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The lease of a tombstone that this gateway cleans. If the gateway is killed, another continues after it.
const LEASE: Duration = Duration::from_secs(15);

const _: () = assert!(DELETED_WITHIN.as_millis() < LEASE.as_millis());

/// Cleans up after MCP sessions, until it is stopped. Passes are `interval` apart, plus or minus a quarter.
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
    /// The number of sessions cleaned in this pass.
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
        self.router.note_cleaned(&key.digest(), reaped);
        tracing::debug!(session = %key.digest(), outcome = <&'static str>::from(reaped), "tombstone cleaned");
        true
    }

    async fn finish_pass(&self) {
        let sessions = self.cleaned.swap(0, Ordering::Relaxed);
        if sessions > 0 {
            tracing::info!(
                sessions,
                "deleted the upstream sessions of expired and ended sessions"
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

    /// Puts off the tombstone, for the whole fleet, by the longest pause among its instances. It is retried until the
    /// store drops it.
    async fn put_off(&self, key: &SessionKey, cleanup: &CleanupResult) {
        let now = Instant::now();
        let pauses = cleanup
            .unanswered
            .iter()
            .map(|place| self.pauses.unanswered(place, now));
        let refused = (cleanup.refused > 0).then_some(REFUSED_PAUSE);
        if let Some(longest) = pauses.chain(refused).max() {
            // If this fails, the current lease expires sooner.
            let (store, worker) = (self.router.store(), self.router.worker());
            let _ = store.claim_tombstone(worker, key, longest).await;
        }
    }
}
