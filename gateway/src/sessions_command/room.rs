//! Makes room for an imported session within the principal's session cap.
//!
//! Invariant: no session is evicted for one that was used earlier.

use mooring_session::Refusal;
use mooring_session::record::SessionState;
use mooring_session::rules::{CreateRequest, EndCondition, EndRequest};

use super::agent_record::used_at_ms;
use super::agent_records::AgentRecords;
use super::outcome::SessionsError;
use mooring_admin::sessions::select_sessions;
use mooring_agent::session_file::Entry;
use mooring_store::{Family, SessionKey, SessionQuery, StoreError};

/// Most evictions for one new session.
const ROUNDS_MAX: usize = 4;

impl AgentRecords<'_> {
    /// Creates the record, and returns whether it is new; none if there is no room. At the cap, the principal's least
    /// recently used session is ended if it is idle and was used earlier than this one. The store's own order is not
    /// used: it counts an import as a use.
    pub(super) async fn create(
        &self,
        key: &SessionKey,
        create: &CreateRequest,
        entry: &Entry,
    ) -> Result<Option<bool>, SessionsError> {
        for _ in 0..ROUNDS_MAX {
            match self.store.create(key, create).await {
                Ok(created) => return Ok(Some(created.created)),
                Err(StoreError::Refused(Refusal::Cap { .. })) => {}
                Err(error) => return Err(error.into()),
            }
            let Some(least) = self.least_recently_used().await? else {
                return Ok(None);
            };
            if !self.make_room(&least, entry).await? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The least recently used of the principal's sessions at all agents.
    async fn least_recently_used(&self) -> Result<Option<SessionKey>, SessionsError> {
        let query = SessionQuery {
            family: Family::Agent,
            principal: Some(self.owner.principal.clone()),
            state: Some(SessionState::Active),
            ..SessionQuery::default()
        };
        let all = select_sessions(self.store, query, usize::MAX, |_, _| true).await?;
        let least = all
            .sessions
            .into_iter()
            .min_by_key(|found| used_at_ms(&found.record));
        Ok(least.map(|found| found.key))
    }

    async fn make_room(&self, key: &SessionKey, entry: &Entry) -> Result<bool, SessionsError> {
        let end = EndRequest {
            principal: Some(self.owner.principal.clone()),
            when: EndCondition::Idle,
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
            // It has already ended.
            Err(StoreError::Refused(Refusal::NoSession)) => Ok(true),
            ended => Ok(ended?),
        }
    }
}
