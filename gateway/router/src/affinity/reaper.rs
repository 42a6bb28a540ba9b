//! The reaper: what expired or ended sessions still hold upstream is deleted there, by whichever worker comes first.
//!
//! Invariants: one worker at a time cleans an incarnation, because the store gives its tombstone to one at a time
//! (CLAIM); a worker that dies meanwhile is followed by another when its lease has lapsed; and what is dropped in the end
//! is the tombstone of exactly that incarnation (FORGET), never the session of a client that came back.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use mooring_session::view::RecordView;
use rand::seq::SliceRandom;

use super::SessionRouter;
use super::cleaning::{CleanRefusal, CleanupResult, DELETED_WITHIN, ForgetOutcome};
use super::pauses::Pauses;
use mooring_metrics::{self as metrics, ReapOutcome};
use mooring_store::{Family, SessionKey, StoreError};

/// Most tombstones asked for at once.
const BATCH: usize = 100;
/// Most tombstones cleaned at the same time.
const AT_ONCE: usize = 16;
/// How long a tombstone is put off where an instance answered a DELETE with an error: that says something of the one
/// session, and nothing of the others that the instance has.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How long a tombstone is this worker's to clean. A worker that was killed is followed by another after it.
const LEASE: Duration = Duration::from_secs(15);

const _: () = assert!(DELETED_WITHIN.as_millis() < LEASE.as_millis());

/// What became of one tombstone in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is off the store's list, for now or for ever.
    Done(ReapOutcome),
    /// Another worker has it, or had it.
    Elsewhere,
    /// The store could not be asked.
    NotAsked,
}

/// Looks for tombstones and cleans them, until it is stopped. The pauses between two looks are `interval`, give or take
/// a quarter.
pub async fn reap(router: SessionRouter, interval: Duration) {
    let reaper = Reaper {
        router,
        pauses: Pauses::default(),
    };
    let mut was_asked = true;
    loop {
        tokio::time::sleep(jittered(interval)).await;
        match reaper.pass().await {
            Ok(()) => was_asked = true,
            // One line for a whole outage: the store's own state is logged where it changes.
            Err(error) if was_asked => {
                was_asked = false;
                tracing::info!(%error, "sessions that are over were not looked for");
            }
            Err(_) => {}
        }
    }
}

/// A pause that is up to a quarter shorter or longer, so that the workers of a fleet do not look at the same time.
pub fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.75..1.25))
}

struct Reaper {
    router: SessionRouter,
    pauses: Pauses,
}

impl Reaper {
    /// Cleans what there is, batch by batch, for as long as batches are full and some of them was this worker's to do.
    async fn pass(&self) -> Result<(), StoreError> {
        let mut cleaned = 0_usize;
        loop {
            let (store, worker) = (self.router.store(), self.router.worker());
            let mut keys = store.reap(worker, Family::Mcp, BATCH).await?;
            let is_full = keys.len() >= BATCH;
            // Workers that look at the same time are named the same sessions; in different orders they share them.
            keys.shuffle(&mut rand::rng());
            let outcomes: Vec<Outcome> = stream::iter(keys)
                .map(|key| async move { self.clean(&key).await })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            let count =
                |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|o| wanted(o)).count();
            cleaned = cleaned.saturating_add(count(|o| *o == Outcome::Done(ReapOutcome::Cleaned)));
            if !is_full || count(|o| matches!(o, Outcome::Done(_))) == 0 {
                break;
            }
        }
        if cleaned > 0 {
            tracing::info!(
                sessions = cleaned,
                "what expired or ended sessions held upstream was deleted"
            );
        }
        Ok(())
    }

    async fn clean(&self, key: &SessionKey) -> Outcome {
        let record = match self.router.claim(key, LEASE).await {
            Ok(record) => record,
            Err(CleanRefusal::Elsewhere) => return Outcome::Elsewhere,
            Err(CleanRefusal::NotAsked) => return Outcome::NotAsked,
        };
        let started = Instant::now();
        self.router.drop_own_params(&record).await;
        let cleanup = self
            .router
            .delete_held(key, &record, |binding| {
                let place = (binding.server.clone(), binding.instance.clone());
                binding.upstream_session.is_some() && self.pauses.is_paused(&place, started)
            })
            .await;
        self.note_answers(&record, &cleanup);
        let reaped = if cleanup.is_undone() {
            self.put_off(key, &cleanup).await;
            ReapOutcome::PutOff
        } else {
            match self.router.forget(key, record.generation).await {
                ForgetOutcome::Now if cleanup.unconfigured > 0 => ReapOutcome::Unconfigured,
                ForgetOutcome::Now => ReapOutcome::Cleaned,
                ForgetOutcome::Elsewhere => ReapOutcome::Stale,
                ForgetOutcome::NotAsked => return Outcome::NotAsked,
            }
        };
        metrics::session_reaped(reaped);
        tracing::debug!(session = %key.digest(), outcome = reaped.as_str(), "a tombstone was looked after");
        Outcome::Done(reaped)
    }

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
            let _ = self.router.claim(key, longest).await;
        }
    }
}
