//! Admission: a principal that holds as many sessions as it may gets a new one in the place of one that it does not use.
//!
//! Invariant: a session in use is never ended for another. What is in use the store says (a claim or a turn is live), or
//! this worker (a call is open here); a call that is open at another worker counts as a use, noted every second.

use std::collections::BTreeMap;

use mooring_session::Refusal;
use mooring_session::names::Principal;
use mooring_session::rules::{CreateReply, CreateRequest, EndCondition, EndRequest, TouchRequest};

use super::open::OpenError;
use super::{Session, SessionRouter};
use mooring_metrics as metrics;
use mooring_store::{EvictionOutcome, RoomError, SessionKey, StoreError};

impl SessionRouter {
    /// Creates the record, or finds it. At the principal's cap the least recently used of its idle sessions is ended for it.
    ///
    /// # Errors
    /// [`OpenError::AtCap`] where none is idle; what the store says.
    pub(super) async fn admit(
        &self,
        session: &Session,
        create: &CreateRequest,
    ) -> Result<CreateReply, OpenError> {
        let make_room = |key| self.make_room(&session.principal, key);
        let admitted = self
            .store()
            .create_making_room(&session.key, create, make_room);
        admitted.await.map_err(|error| match error {
            RoomError::Store(error) => error.into(),
            RoomError::Full(held) => {
                metrics::session_capped(metrics::CapOutcome::Refused);
                OpenError::AtCap(held)
            }
        })
    }

    /// Ends the session under `key` if it is idle; otherwise notes that it is in use, so that the next one is named.
    async fn make_room(
        &self,
        principal: &Principal,
        key: SessionKey,
    ) -> Result<EvictionOutcome, StoreError> {
        let servers = self.servers().iter().map(|server| server.id.clone());
        if self.active_bindings().is_in_call(&key, servers) {
            return self.note_use(principal, &key).await;
        }
        let request = EndRequest {
            principal: Some(principal.clone()),
            when: EndCondition::Idle,
        };
        match self.store().end(&key, &request).await {
            Ok(ended) => {
                self.active_bindings().forget(&key, &ended.record);
                if ended.ended_now {
                    metrics::session_capped(metrics::CapOutcome::Ended);
                    tracing::info!(
                        session = %key.digest(),
                        "the principal is at its cap: its least recently used session was ended for a new one"
                    );
                    let router = self.clone();
                    tokio::spawn(async move { router.clean_ended(&key, &ended.record).await });
                }
                Ok(EvictionOutcome::Made)
            }
            Err(StoreError::Refused(Refusal::Busy(_))) => self.note_use(principal, &key).await,
            // It went by itself.
            Err(StoreError::Refused(Refusal::NoSession)) => Ok(EvictionOutcome::Made),
            Err(error) => Err(error),
        }
    }

    async fn note_use(
        &self,
        principal: &Principal,
        key: &SessionKey,
    ) -> Result<EvictionOutcome, StoreError> {
        let request = TouchRequest {
            principal: principal.clone(),
            ttl: None,
            content_hash: None,
            labels: BTreeMap::new(),
            reported: None,
        };
        match self.store().touch(key, &request).await {
            Ok(_) | Err(StoreError::Refused(_)) => Ok(EvictionOutcome::Spared),
            Err(error) => Err(error),
        }
    }
}
