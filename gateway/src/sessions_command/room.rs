//! Room for a session: what a principal may hold is bounded, also for what is imported.
//!
//! Invariant: no session is ended for one that was used earlier.

use mooring_session::Refusal;
use mooring_session::rules::{Create, End, EndWhen};

use super::SessionsError;
use super::agent_record::used_at_ms;
use super::agent_records::AgentRecords;
use crate::agent::session_file::Entry;
use crate::store::{Family, SessionKey, StoreError};

/// Most sessions that are ended to make room for one.
const ROUNDS_MAX: usize = 4;

impl AgentRecords<'_> {
    /// Makes the record, and says whether it is new. None where there is no room for it: at the cap, the least recently
    /// used session is ended if it is idle and was used earlier than this one.
    pub(super) async fn create(
        &self,
        key: &SessionKey,
        create: &Create,
        entry: &Entry,
    ) -> Result<Option<bool>, SessionsError> {
        for _ in 0..ROUNDS_MAX {
            let least_recently_used = match self.store.create(key, create).await {
                Ok(created) => return Ok(Some(created.created)),
                Err(StoreError::Refused(Refusal::Cap {
                    least_recently_used,
                    ..
                })) => self.store.named_key(&least_recently_used),
                Err(error) => return Err(error.into()),
            };
            let Some(least) = least_recently_used else {
                return Ok(None);
            };
            if !self.make_room(&least, entry).await? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    async fn make_room(&self, key: &SessionKey, entry: &Entry) -> Result<bool, SessionsError> {
        if key.family() != Family::Agent {
            return Ok(false);
        }
        let end = End {
            principal: Some(self.owner.principal.clone()),
            when: EndWhen::Idle,
        };
        let ended = async {
            let record = self.store.get(key).await?;
            if used_at_ms(&record) >= entry.updated_at_ms {
                return Ok(false);
            }
            self.store.end(key, &end).await.map(|_| true)
        };
        match ended.await {
            Err(StoreError::Refused(Refusal::Busy(_))) => Ok(false),
            // It went by itself.
            Err(StoreError::Refused(Refusal::NoSession)) => Ok(true),
            ended => Ok(ended?),
        }
    }
}
