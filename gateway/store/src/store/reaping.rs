//! The reaper's loop: whichever gateway is first deletes the resources of expired or ended sessions of a family.
//!
//! Invariants: only one gateway at a time cleans up a generation, because the store grants its tombstone to one at a
//! time (CLAIM); if that gateway dies, another one takes over when the lease has expired; and only the tombstone of
//! that generation is deleted (FORGET), never the session of a client that came back.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use mooring_session::Refusal;
use mooring_session::names::WorkerId;
use mooring_session::rules::{ClaimRequest, ForgetRequest};
use mooring_session::time::Millis;
use mooring_session::view::RecordView;
use rand::seq::SliceRandom;

use super::Store;
use crate::error::StoreError;
use crate::key::{Family, SessionKey};

/// Most tombstones requested at once.
const BATCH: usize = 100;

/// Cleans up after the sessions of one family.
pub trait Reaper: Sync {
    /// The family.
    const FAMILY: Family;
    /// Most tombstones cleaned at the same time.
    const AT_ONCE: usize;

    /// Cleans up one tombstone. False if another gateway has it, or the store is unavailable.
    fn clean(&self, key: SessionKey) -> impl Future<Output = bool> + Send;

    /// Runs after every pass.
    fn finish_pass(&self) -> impl Future<Output = ()> + Send;
}

/// Why a tombstone is not this gateway's to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRefusal {
    /// Another gateway has it, or had it.
    Elsewhere,
    /// The store is unavailable.
    NotAsked,
}

/// The result of dropping a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgetOutcome {
    /// It is dropped.
    Now,
    /// Its session has begun again, another gateway cleans it, or it was dropped before.
    Elsewhere,
    /// The store is unavailable. The next gateway that cleans it up finds everything deleted.
    NotAsked,
}

/// A pause that is up to a quarter shorter or longer, so that gateways do not query at the same time.
pub fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.75..1.25))
}

impl Store {
    /// Requests tombstones and cleans them up until it is stopped. The pauses between passes are `interval`,
    /// [`jittered`].
    pub async fn reap_all(&self, worker: &WorkerId, reaper: &impl Reaper, interval: Duration) {
        let mut was_asked = true;
        loop {
            tokio::time::sleep(jittered(interval)).await;
            match self.reap_pass(worker, reaper).await {
                Ok(()) => was_asked = true,
                // One line per outage: changes of the store's state are logged elsewhere.
                Err(error) if was_asked => {
                    was_asked = false;
                    tracing::info!(%error, "expired-session scan failed");
                }
                Err(_) => {}
            }
            reaper.finish_pass().await;
        }
    }

    /// Cleans batch by batch, as long as batches are full and some of them was this gateway's to clean.
    async fn reap_pass<R: Reaper>(&self, worker: &WorkerId, reaper: &R) -> Result<(), StoreError> {
        loop {
            let mut keys = self.reap(worker, R::FAMILY, BATCH).await?;
            let is_full = keys.len() >= BATCH;
            // Gateways that query at the same time get the same sessions; in different orders they share the work.
            keys.shuffle(&mut rand::rng());
            let outcomes: Vec<bool> = stream::iter(keys)
                .map(|key| reaper.clean(key))
                .buffer_unordered(R::AT_ONCE)
                .collect()
                .await;
            if !is_full || !outcomes.contains(&true) {
                return Ok(());
            }
        }
    }

    /// Claims a tombstone, or renews the claim, for this long.
    ///
    /// # Errors
    /// See [`ClaimRefusal`].
    pub async fn claim_tombstone(
        &self,
        worker: &WorkerId,
        key: &SessionKey,
        lease: Duration,
    ) -> Result<RecordView, ClaimRefusal> {
        let request = ClaimRequest {
            worker: worker.clone(),
            lease: Millis::from(lease),
        };
        match self.claim(key, &request).await {
            Ok(record) => Ok(record),
            Err(StoreError::Refused(Refusal::Busy(_) | Refusal::NoSession)) => {
                Err(ClaimRefusal::Elsewhere)
            }
            Err(error) => {
                tracing::debug!(session = %key.digest(), %error, "a tombstone could not be claimed");
                Err(ClaimRefusal::NotAsked)
            }
        }
    }

    /// Drops the tombstone of an incarnation that was cleaned.
    pub async fn forget_tombstone(
        &self,
        worker: &WorkerId,
        key: &SessionKey,
        generation: u64,
    ) -> ForgetOutcome {
        let request = ForgetRequest {
            generation,
            worker: worker.clone(),
        };
        match self.forget(key, &request).await {
            Ok(()) => ForgetOutcome::Now,
            Err(StoreError::Refused(Refusal::Stale(_) | Refusal::NoSession)) => {
                ForgetOutcome::Elsewhere
            }
            Err(error) => {
                tracing::debug!(session = %key.digest(), %error, "a cleaned tombstone could not be dropped");
                ForgetOutcome::NotAsked
            }
        }
    }
}
