//! Workers, lists and the reaper of a store that falls back to memory. They concern the whole fleet, so none of them is
//! served from memory.
//!
//! Invariant: while Redis is away or being reconciled, no session is returned or claimed for cleaning up. A session
//! that was used meanwhile may look expired to Redis.

use mooring_session::names::WorkerId;
use mooring_session::time::Millis;
use mooring_session::workers::Beat;

use super::FallbackStore;
use super::shared::{Phase, Shared};
use crate::error::{StoreError, UnavailableReason};
use crate::key::{Family, SessionKey};
use crate::query::{SessionPage, SessionQuery};
use crate::redis::RedisStore;
use crate::session_counts::SessionCounts;
use crate::workers::WorkerView;

/// How often a gateway that has others beside it asks for them. In a large fleet the answer is long.
const OTHERS_ASKED_EVERY: Millis = Millis::new(60_000);

impl FallbackStore {
    /// Memory acknowledges no heartbeat: a worker must notice that its heartbeats do not reach the others. Nor does a
    /// replica. A gateway that is alone asks with each whether it still is, for when Redis is away.
    pub(crate) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        self.shared.redis.beat(beat).await?;
        self.shared.memory().replica_since = None;
        if self.shared.asks_for_others() {
            let is_other = |worker: &WorkerView| worker.alive && worker.worker != beat.worker;
            // While Redis is away, what it said last holds.
            if let Ok(workers) = self.shared.redis.workers().await {
                self.shared.memory().is_alone = !workers.iter().any(is_other);
            }
        }
        Ok(())
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

    pub(crate) async fn count(&self, family: Family) -> Result<Option<SessionCounts>, StoreError> {
        self.shared.present().await?.count(family).await
    }

    pub(crate) async fn explain(&self, key: &SessionKey) -> Result<Vec<String>, StoreError> {
        self.shared.present().await?.explain(key).await
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
    /// Whether it is time to ask for other gateways; the moment is then noted.
    fn asks_for_others(&self) -> bool {
        let (now, mut memory) = (self.clock.mono(), self.memory());
        let is_due = memory.is_alone
            || (memory.asked_for_others_at)
                .is_none_or(|asked_at| asked_at.plus(OTHERS_ASKED_EVERY) <= now);
        if is_due {
            memory.asked_for_others_at = Some(now);
        }
        is_due
    }

    /// Redis, if it currently serves every command.
    pub(super) async fn present(&self) -> Result<&RedisStore, StoreError> {
        match self.settled_phase().await? {
            Phase::Normal => Ok(&self.redis),
            Phase::Away | Phase::Reconciling => {
                Err(StoreError::Away(UnavailableReason::Disconnected))
            }
        }
    }
}
