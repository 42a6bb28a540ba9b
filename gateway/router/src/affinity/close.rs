//! Closing: the client deletes its session, and its upstream sessions are deleted too.
//!
//! Invariant: the gateway that ended a session cleans up after it, and no other does during the lease that END granted.

use mooring_session::Refusal;
use mooring_session::rules::{EndCondition, EndRequest};

use super::{Session, SessionRouter};
use mooring_store::{EndCause, StoreError};
use mooring_usage::for_same_user;

/// Whether this call ended the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// This call ended it.
    Now,
    /// It had ended before.
    AlreadyClosed,
}

impl SessionRouter {
    /// Ends the session, deletes its upstream sessions, and drops its tombstone. Ending twice is no error; the second
    /// time nothing is deleted, because the first caller or the reaper cleans up. That includes a first call of this
    /// gateway whose reply was lost.
    ///
    /// # Errors
    /// Refusals of the store (an unknown session, another principal's), or the store is unreachable.
    pub async fn close(&self, session: &Session) -> Result<CloseOutcome, StoreError> {
        let ended = self.store().end(&session.key, &ending(session)).await?;
        self.forget_session(&session.key, &ended.record);
        if !ended.ended_now {
            return Ok(CloseOutcome::AlreadyClosed);
        }
        self.note_ended(&session.digest, EndCause::Client);
        self.clean_ended(&session.key, &ended.record).await;
        Ok(CloseOutcome::Now)
    }

    /// Ends a session whose client has to initialize again. Its upstream sessions are deleted in the background.
    pub(super) async fn close_lost(&self, session: &Session, cause: EndCause) {
        match self.store().end(&session.key, &ending(session)).await {
            Ok(ended) => {
                self.forget_session(&session.key, &ended.record);
                if ended.ended_now {
                    self.note_ended(&session.digest, cause);
                    let (router, key) = (self.clone(), session.key.clone());
                    tokio::spawn(for_same_user(async move {
                        router.clean_ended(&key, &ended.record).await
                    }));
                }
            }
            Err(StoreError::Refused(Refusal::NoSession)) => {}
            Err(error) => {
                tracing::warn!(session = %session.digest, %error, "failed to end a lost session; it will expire");
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
