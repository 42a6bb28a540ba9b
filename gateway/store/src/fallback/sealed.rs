//! Sealed values while Redis may be away: memory has none, so that a value that was replaced or deleted is never used.

use super::FallbackStore;
use crate::error::{StoreError, UnavailableReason};

impl FallbackStore {
    pub(crate) async fn get_sealed(
        &self,
        names: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let got = self.shared.by_redis(|| self.shared.redis.get_sealed(names));
        got.await?.ok_or(AWAY)
    }

    pub(crate) async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let put = (self.shared).by_redis(|| self.shared.redis.put_sealed(name, value));
        put.await?.ok_or(AWAY)
    }

    pub(crate) async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        let deleted = (self.shared).by_redis(|| self.shared.redis.delete_sealed(names));
        deleted.await?.ok_or(AWAY)
    }
}

pub(super) const AWAY: StoreError = StoreError::Away(UnavailableReason::Disconnected);
