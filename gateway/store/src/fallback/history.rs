//! Histories while Redis may be away: entries wait in the queue of the process until it is back.

use mooring_session::time::Millis;

use super::FallbackStore;
use super::sealed::AWAY;
use crate::blockers::SessionBlockers;
use crate::error::StoreError;
use crate::history::HistoryWrite;
use crate::key::SessionKey;

impl FallbackStore {
    pub(crate) async fn append_history(&self, write: &HistoryWrite) -> Result<(), StoreError> {
        let appended = (self.shared).by_redis(|| self.shared.redis.append_history(write));
        appended.await?.ok_or(AWAY)
    }

    pub(crate) async fn read_history(&self, session: &str) -> Result<Vec<String>, StoreError> {
        let read = (self.shared).by_redis(|| self.shared.redis.read_history(session));
        read.await?.ok_or(AWAY)
    }

    /// Memory does not know who waits at other gateways.
    pub(crate) async fn blockers(&self, key: &SessionKey) -> Result<SessionBlockers, StoreError> {
        let found = (self.shared).by_redis(|| self.shared.redis.blockers(key));
        found.await?.ok_or(AWAY)
    }

    pub(crate) async fn renew_history(
        &self,
        session: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let renewed = (self.shared).by_redis(|| self.shared.redis.renew_history(session, keep));
        renewed.await?.ok_or(AWAY)
    }
}
