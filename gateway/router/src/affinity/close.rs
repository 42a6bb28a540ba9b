//! Closing: the client deletes its session, and what it held upstream goes with it.
//!
//! Invariant: whoever ended a session cleans up after it, and nobody else does while the lease that END gave runs.

use mooring_session::Refusal;
use mooring_session::rules::{EndCondition, EndRequest};

use super::{Session, SessionRouter};
use mooring_store::StoreError;

/// Whether a session was still there to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// This call closed it.
    Now,
    /// It was closed before.
    AlreadyClosed,
}

impl SessionRouter {
    /// Ends the session, deletes its upstream sessions, and drops its tombstone. Ending twice is no error, and the
    /// second time nothing is deleted: the first caller cleans up, or the reaper after it, also where the first caller
    /// was this one and the store's reply was lost.
    ///
    /// # Errors
    /// What the store refuses: an unknown session, somebody else's; or that it cannot be asked.
    pub async fn close(&self, session: &Session) -> Result<CloseOutcome, StoreError> {
        let ended = self.store().end(&session.key, &ending(session)).await?;
        self.active_bindings().forget(&session.key, &ended.record);
        if !ended.ended_now {
            return Ok(CloseOutcome::AlreadyClosed);
        }
        self.clean_ended(&session.key, &ended.record).await;
        Ok(CloseOutcome::Now)
    }

    /// Ends a session whose client has to initialize again. Nobody waits for what it holds at other servers, and at the
    /// one that lost it, to be deleted.
    pub(super) async fn close_lost(&self, session: &Session) {
        match self.store().end(&session.key, &ending(session)).await {
            Ok(ended) => {
                self.active_bindings().forget(&session.key, &ended.record);
                if ended.ended_now {
                    let (router, key) = (self.clone(), session.key.clone());
                    tokio::spawn(async move { router.clean_ended(&key, &ended.record).await });
                }
            }
            Err(StoreError::Refused(Refusal::NoSession)) => {}
            Err(error) => {
                tracing::warn!(session = %session.digest, %error, "a lost session could not be ended; it will expire");
            }
        }
    }
}

fn ending(session: &Session) -> EndRequest {
    EndRequest {
        principal: Some(session.principal.clone()),
        when: EndCondition::Always,
    }
}
