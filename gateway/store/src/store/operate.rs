//! Operations on many records for the reaper and operators: listing sessions, and finding those to clean up.
//!
//! Invariant: no index decides anything. LIST and REAP return candidates; the command on a session's record checks its
//! state again.

use mooring_session::names::WorkerId;
use mooring_session::rules::{ClaimRequest, ForgetRequest};
use mooring_session::view::RecordView;

use super::{Backend, Store, on_backend};
use crate::blockers::SessionBlockers;
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::query::{SessionPage, SessionQuery};
use crate::session_counts::SessionCounts;

impl Store {
    /// Parses a key that this store returned, such as the least recently used session at a session cap; none if it is
    /// not the key of a session with this gateway's prefix.
    #[must_use]
    pub fn named_key(&self, key: &[u8]) -> Option<SessionKey> {
        SessionKey::named(&self.prefix, key)
    }

    /// The key of a family with this `place`: the id of an MCP session; server, user and a third part of any other.
    /// None if that makes no valid key.
    #[must_use]
    pub fn key_at(&self, family: Family, place: &str) -> Option<SessionKey> {
        self.key_named(&(family.head(&self.prefix) + place))
    }

    /// `hash-max-listpack-value` of Redis; none where the store is no Redis.
    ///
    /// # Errors
    /// Redis refused, for instance because its user may not read settings, or is away.
    pub async fn listpack_value_bytes(&self) -> Result<Option<u64>, StoreError> {
        match &*self.backend {
            Backend::Redis(store, _) => store.listpack_value_bytes().await,
            Backend::Fallback(store) => store.redis().listpack_value_bytes().await,
            _ => Ok(None),
        }
    }

    /// The record of a session, and what its calls may wait for: the turns and their holders, claims, and cleaning up.
    /// Counts as no use.
    ///
    /// # Errors
    /// Refused: `NOSESSION`. `UnavailableReason` while Redis is.
    pub async fn blockers(&self, key: &SessionKey) -> Result<SessionBlockers, StoreError> {
        on_backend!("SESSION.GET", self.blockers(key))
    }

    /// One page of the sessions that match a query. Counts as no use.
    ///
    /// # Errors
    /// Refused: `ERR` for a cursor that is not of a store of this kind, or an invalid digest or text. `UnavailableReason` while Redis is unavailable:
    /// memory does not know all sessions.
    pub async fn list(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        on_backend!("SESSION.LIST", self.list(query))
    }

    /// How many active sessions of a family there are, and where they are bound. None if this store cannot tell: then
    /// [`list`](Self::list) does.
    ///
    /// # Errors
    /// `UnavailableReason` while Redis is unavailable.
    pub async fn count(&self, family: Family) -> Result<Option<SessionCounts>, StoreError> {
        on_backend!("SESSION.COUNT", self.count(family))
    }

    /// The record in sentences, with its turns, for people. It shows no secret, and counts as no use.
    ///
    /// # Errors
    /// Refused: `NOSESSION`. `UnavailableReason` while Redis is unavailable.
    pub async fn explain(&self, key: &SessionKey) -> Result<Vec<String>, StoreError> {
        on_backend!("SESSION.EXPLAIN", self.explain(key))
    }

    /// Returns at most `count` keys of expired or ended sessions of a family with resources to clean up, for `worker`:
    /// [`claim`](Self::claim), delete the resources, [`forget`](Self::forget). Counts as no use. Other sessions in the
    /// same store are neither returned nor in the way.
    ///
    /// # Errors
    /// `UnavailableReason` while Redis is: nothing is reaped without it.
    pub async fn reap(
        &self,
        worker: &WorkerId,
        family: Family,
        count: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        on_backend!("SESSION.REAP", self.reap(worker, family, count))
    }

    /// Claims a tombstone for cleaning up, and returns its resources. Repeating it renews the worker's lease.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `BUSY`. `UnavailableReason` while Redis is.
    pub async fn claim(
        &self,
        key: &SessionKey,
        request: &ClaimRequest,
    ) -> Result<RecordView, StoreError> {
        self.run(key, request).await
    }

    /// Drops the tombstone of exactly this incarnation after its cleaning.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `STALE`. `UnavailableReason` while Redis is; the tombstone then stays for the reaper.
    pub async fn forget(
        &self,
        key: &SessionKey,
        request: &ForgetRequest,
    ) -> Result<(), StoreError> {
        self.run(key, request).await
    }
}
