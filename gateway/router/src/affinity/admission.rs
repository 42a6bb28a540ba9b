//! Admission: at the session limit of a principal, a new session replaces one that is not in use.
//!
//! Invariant: a session in use is never ended for another. In use are sessions with a live claim or turn according to
//! the store, and those with an open call at this gateway; an open call at a peer counts as a use that is recorded
//! every second.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::Principal;
use mooring_session::rules::{CreateReply, CreateRequest, EndCondition, EndRequest, TouchRequest};
use tokio::time::sleep;

use super::open::OpenError;
use super::{Session, SessionRouter};
use mooring_metrics as metrics;
use mooring_store::{EndCause, EvictionOutcome, RoomError, SessionKey, StoreError};
use mooring_usage::for_same_user;

/// How long a gateway has to leave a turn that was recalled. It does so at once, unless its call runs.
const RECALL_PAUSE: Duration = Duration::from_millis(50);

impl SessionRouter {
    /// Creates the record or finds it. At the principal's limit, its least recently used idle session is ended.
    ///
    /// # Errors
    /// [`OpenError::AtCap`] if none is idle; errors of the store.
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

    /// The same, and whether it was counted as a new session of the principal: that comes before another is ended for it.
    pub(super) async fn admit_counted(
        &self,
        session: &Session,
        create: &CreateRequest,
    ) -> Result<(CreateReply, bool), OpenError> {
        match self.store().create(&session.key, create).await {
            Ok(created) => Ok((created, false)),
            Err(StoreError::Refused(Refusal::Cap { .. })) => {
                self.check_rate(&session.principal).await?;
                Ok((self.admit(session, create).await?, true))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the session under `key` if it is idle; otherwise records the use, so that the store names the next one.
    async fn make_room(
        &self,
        principal: &Principal,
        key: SessionKey,
    ) -> Result<EvictionOutcome, StoreError> {
        let servers = self.servers();
        let ids = servers.iter().map(|server| server.id.clone());
        if self.active_bindings().is_in_call(&key, ids) {
            return self.note_use(principal, &key).await;
        }
        // A delegated turn that no call uses is no use of the session.
        for server in servers.iter() {
            self.delegations().recall(&key, &server.id);
        }
        let request = EndRequest {
            principal: Some(principal.clone()),
            when: EndCondition::Idle,
        };
        let mut ended = self.store().end(&key, &request).await;
        if let Err(StoreError::Refused(Refusal::Busy(_))) = &ended {
            // Another gateway may have a turn of it delegated, which this has recalled.
            sleep(RECALL_PAUSE).await;
            ended = self.store().end(&key, &request).await;
        }
        match ended {
            Ok(ended) => {
                self.forget_session(&key, &ended.record);
                if ended.ended_now {
                    metrics::session_capped(metrics::CapOutcome::Ended);
                    self.note_ended(&key.digest(), EndCause::Limit);
                    tracing::info!(
                        session = %key.digest(),
                        "session limit reached: ended the principal's least recently used session"
                    );
                    let router = self.clone();
                    tokio::spawn(for_same_user(async move {
                        router.clean_ended(&key, &ended.record).await
                    }));
                }
                Ok(EvictionOutcome::Made)
            }
            Err(StoreError::Refused(Refusal::Busy(_))) => self.note_use(principal, &key).await,
            // It has ended on its own.
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
