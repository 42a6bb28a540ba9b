//! Renewing the initialize params, and what a server answered to them where a session can be continued: they are kept under a key of their own, and must outlive every session they serve.
//!
//! Only an `initialize` writes them, so those of a client build that nobody starts any more would lapse under a session
//! that is in use, and that session could then not be moved.

use std::collections::HashSet;

use super::Affinity;
use super::continued::answer_digest;
use super::establish::init_digest;
use crate::store::StoreError;

impl Affinity {
    /// Renews the params of every session this worker has served within its TTL. Called at least once per TTL.
    ///
    /// # Errors
    /// The store cannot be asked; what was not renewed is renewed the next time.
    pub async fn renew_params(&self) -> Result<(), StoreError> {
        let mut renewed = HashSet::new();
        for key in self.driven().recent() {
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
