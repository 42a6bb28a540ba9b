//! Initialize params: where they are stored, for how long, and their size limit.
//!
//! A moved session is initialized at its new instance with the params of its client's `initialize`. Sessions of one
//! client build share short params under their digest, which must outlive all these sessions: only `initialize` writes
//! them, so they are renewed here for sessions in use. Longer params belong to one session and are deleted with it, so
//! that a client that begins many sessions leaves nothing large behind. Stored answers of servers, for sessions that
//! can be continued, are renewed likewise.

use std::collections::{BTreeMap, HashSet};

use mooring_session::names::{LabelName, LabelValue};
use mooring_session::view::RecordView;

use super::establish::{INIT_LABEL, init_digest};
use super::named_session::answer_digest;
use super::{Session, SessionRouter};
use mooring_store::{InitDigest, StoreError, labels};

/// Longest initialize params, in bytes. Clients send a few hundred.
pub(super) const INIT_PARAMS_BYTES_MAX: usize = 8 * 1024;
/// Longest params that sessions share, in bytes.
const SHARED_PARAMS_BYTES_MAX: usize = 512;
/// The label of a session whose params are not shared.
const OWN_PARAMS_LABEL: &[u8] = b"init_own";

/// The key of a session's initialize params.
#[derive(Debug)]
pub(super) struct ParamsKey {
    pub(super) digest: InitDigest,
    is_own: bool,
}

impl ParamsKey {
    pub(super) fn of(params: &str) -> Self {
        let is_own = params.len() > SHARED_PARAMS_BYTES_MAX;
        let digest = match is_own {
            // Not derived from the session, whose name a later session may have too.
            true => InitDigest::of(&format!("{:032x}", rand::random::<u128>())),
            false => InitDigest::of(params),
        };
        Self { digest, is_own }
    }

    /// The labels of the session's record.
    pub(crate) fn labels(&self) -> BTreeMap<LabelName, LabelValue> {
        match self.is_own {
            true => labels(&[(INIT_LABEL, self.digest.as_str()), (OWN_PARAMS_LABEL, "1")]),
            false => labels(&[(INIT_LABEL, self.digest.as_str())]),
        }
    }
}

impl SessionRouter {
    /// Deletes the params of an ended session, if they are not shared.
    pub(super) async fn drop_own_params(&self, record: &RecordView) {
        let is_own = LabelName::parse(OWN_PARAMS_LABEL)
            .is_ok_and(|label| record.labels.contains_key(&label));
        let digest = init_digest(record).filter(|_| is_own);
        if let Some(digest) = digest
            && let Err(error) = self.store().delete_init(&digest).await
        {
            tracing::debug!(%error, "failed to delete the initialize params of an ended session; they will expire");
        }
    }

    /// The params of the session's `initialize`; none if they are not stored, or it is another principal's.
    ///
    /// # Errors
    /// The store refused or was unreachable.
    pub async fn initialize_params(&self, session: &Session) -> Result<Option<String>, StoreError> {
        let record = self.store().get(&session.key).await?;
        let is_own = record.principal == session.principal;
        match init_digest(&record).filter(|_| is_own) {
            Some(digest) => self.store().get_init(&digest).await,
            None => Ok(None),
        }
    }

    /// Renews the params and the histories of all sessions that this gateway has served within their TTL. Call it at least
    /// once per TTL.
    ///
    /// # Errors
    /// The store is unreachable; the next call renews the rest.
    pub async fn renew_params(&self) -> Result<(), StoreError> {
        let mut renewed = HashSet::new();
        for key in self.active_bindings().recent() {
            // A user of Redis that may not write histories must not keep params from being renewed.
            if let Err(error) = self.store().renew_history(&key).await {
                tracing::debug!(%error, "the history of a session was not renewed");
            }
            let record = match self.store().get(&key).await {
                Ok(record) => record,
                Err(StoreError::Refused(_)) => continue,
                Err(error) => return Err(error),
            };
            for digest in init_digest(&record)
                .into_iter()
                .chain(answer_digest(&record))
            {
                if renewed.contains(&digest) {
                    continue;
                }
                if let Some(params) = self.store().get_init(&digest).await? {
                    self.store().put_init(&digest, &params).await?;
                }
                renewed.insert(digest);
            }
        }
        Ok(())
    }
}
