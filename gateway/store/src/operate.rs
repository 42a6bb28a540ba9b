//! What the reaper and people who operate the gateway ask of a store: which sessions there are, and which of them have
//! to be cleaned up.
//!
//! Invariant: nothing here is decided by an index. LIST and REAP name sessions; what is true of one is said, and checked
//! again, by the command over its record.

use mooring_session::names::WorkerId;
use mooring_session::rules::{ClaimRequest, ForgetRequest};
use mooring_session::view::RecordView;

use super::error::StoreError;
use super::key::{Family, SessionKey};
use super::query::{SessionPage, SessionQuery};
use super::{Store, on_backend};

impl Store {
    /// The key that an answer of this store named, such as the least recently used session of a cap that was reached;
    /// none where it is not the key of a session of this gateway's prefix.
    #[must_use]
    pub fn named_key(&self, key: &[u8]) -> Option<SessionKey> {
        SessionKey::named(&self.prefix, key)
    }

    /// The key of a family whose rest is `place`: the id of an MCP session, server, user and a third part of any other.
    /// None where no key can be like that.
    #[must_use]
    pub fn key_at(&self, family: Family, place: &str) -> Option<SessionKey> {
        self.key_named(&(family.head(&self.prefix) + place))
    }

    /// One page of the sessions that a query asks for. Touches nothing.
    ///
    /// # Errors
    /// Refused: `ERR` for a cursor that no store of this kind gave. `UnavailableReason` while Redis is: memory does not know what
    /// there is.
    pub async fn list(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        on_backend!("SESSION.LIST", self.list(query))
    }

    /// Names at most `count` sessions of a family that expired or ended and still hold something, for `worker` to clean
    /// up: [`claim`](Self::claim), delete what they held, [`forget`](Self::forget). Touches nothing. What others left
    /// under the same store is not named, and does not stand in the way.
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

    /// Takes a tombstone for cleaning, and answers with what it holds. The same worker asking again renews its lease.
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
