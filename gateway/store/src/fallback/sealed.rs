//! Sealed values while Redis may be away: memory has none, so that nobody uses one that was replaced or deleted.

use super::{FallbackStore, Phase};
use crate::error::{StoreError, UnavailableReason};
use crate::redis::RedisStore;

impl FallbackStore {
    pub(crate) async fn get_sealed(
        &self,
        names: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let redis = self.redis_itself().await?;
        self.noted(redis.get_sealed(names).await)
    }

    pub(crate) async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let redis = self.redis_itself().await?;
        self.noted(redis.put_sealed(name, value).await)
    }

    pub(crate) async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        let redis = self.redis_itself().await?;
        self.noted(redis.delete_sealed(names).await)
    }

    /// Redis, if it is not away.
    async fn redis_itself(&self) -> Result<&RedisStore, StoreError> {
        match self.shared.settled_phase().await? {
            Phase::Normal => Ok(&self.shared.redis),
            Phase::Away | Phase::Reconciling => {
                Err(StoreError::Away(UnavailableReason::Disconnected))
            }
        }
    }

    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Away(_)) = &result {
            self.shared.go_away();
        }
        result
    }
}
