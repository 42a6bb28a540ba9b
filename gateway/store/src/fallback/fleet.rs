//! Workers, lists and the reaper where Redis may be away: all of it is for the whole fleet, and none of it is served
//! from memory.
//!
//! Invariant: nothing is named or claimed for cleaning while Redis is away or being reconciled. A session
//! that was used meanwhile may look expired to it.

use mooring_session::names::WorkerId;
use mooring_session::workers::Beat;

use super::{FallbackStore, Phase, Shared};
use crate::error::{StoreError, UnavailableReason};
use crate::fleet::WorkerView;
use crate::key::{Family, SessionKey};
use crate::query::{SessionPage, SessionQuery};
use crate::redis::RedisStore;

impl FallbackStore {
    /// A beat is for others to see, so it is not acknowledged by memory: a worker that others cannot hear must know.
    pub(crate) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        self.shared.redis.beat(beat).await
    }

    pub(crate) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        self.shared.redis.gone(worker).await
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.shared.redis.workers().await
    }

    pub(crate) async fn list(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        self.shared.present().await?.list(query).await
    }

    pub(crate) async fn reap(
        &self,
        worker: &WorkerId,
        family: Family,
        count: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        self.shared
            .present()
            .await?
            .reap(worker, family, count)
            .await
    }
}

impl Shared {
    /// Redis, where it serves everything at present.
    pub(super) async fn present(&self) -> Result<&RedisStore, StoreError> {
        match self.settled_phase().await? {
            Phase::Normal => Ok(&self.redis),
            Phase::Away | Phase::Reconciling => {
                Err(StoreError::Away(UnavailableReason::Disconnected))
            }
        }
    }
}
