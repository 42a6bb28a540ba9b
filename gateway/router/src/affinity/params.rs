//! Initialize params: where they are kept, for how long, and how large they may be.
//!
//! A moved session is initialized at its new instance with the params of its client's `initialize`. Sessions of one
//! client build share short params under a digest of theirs, which must outlive every session that they serve: only an
//! `initialize` writes them, so they are renewed here for sessions that are in use. Longer ones belong to one session and
//! are dropped with it, so that a client that begins many sessions leaves nothing large behind. What a server answered,
//! where a session can be continued, is renewed likewise.

use std::collections::{BTreeMap, HashSet};

use mooring_session::names::{LabelName, LabelValue};
use mooring_session::view::RecordView;

use super::SessionRouter;
use super::establish::{INIT_LABEL, init_digest};
use super::named_session::answer_digest;
use mooring_store::{InitDigest, StoreError, labels};

/// Longest initialize params, in bytes. Clients send a few hundred.
pub(super) const INIT_PARAMS_BYTES_MAX: usize = 8 * 1024;
/// Longest params that sessions share, in bytes.
const SHARED_PARAMS_BYTES_MAX: usize = 512;
/// The label of a session whose params nobody shares.
const OWN_PARAMS_LABEL: &[u8] = b"init_own";

/// Where the initialize params of a session are kept.
#[derive(Debug)]
pub(super) struct ParamsKey {
    pub(super) digest: InitDigest,
    is_own: bool,
}

impl ParamsKey {
    pub(super) fn of(params: &str) -> Self {
        let is_own = params.len() > SHARED_PARAMS_BYTES_MAX;
        let digest = match is_own {
            // Not by the session's name, which a later session may have too.
            true => InitDigest::of(&format!("{:032x}", rand::random::<u128>())),
            false => InitDigest::of(params),
        };
        Self { digest, is_own }
    }

    /// What the session's record says of it.
    pub(crate) fn labels(&self) -> BTreeMap<LabelName, LabelValue> {
        match self.is_own {
            true => labels(&[(INIT_LABEL, self.digest.as_str()), (OWN_PARAMS_LABEL, "1")]),
            false => labels(&[(INIT_LABEL, self.digest.as_str())]),
        }
    }
}

impl SessionRouter {
    /// Drops the params of a session that is over, where nobody shares them.
    pub(super) async fn drop_own_params(&self, record: &RecordView) {
        let is_own = LabelName::parse(OWN_PARAMS_LABEL)
            .is_ok_and(|label| record.labels.contains_key(&label));
        let digest = init_digest(record).filter(|_| is_own);
        if let Some(digest) = digest
            && let Err(error) = self.store().delete_init(&digest).await
        {
            tracing::debug!(%error, "the initialize params of a session that is over are left to lapse");
        }
    }

    /// Renews the params of every session this worker has served within its TTL. Called at least once per TTL.
    ///
    /// # Errors
    /// The store cannot be asked; what was not renewed is renewed the next time.
    pub async fn renew_params(&self) -> Result<(), StoreError> {
        let mut renewed = HashSet::new();
        for key in self.active_bindings().recent() {
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
