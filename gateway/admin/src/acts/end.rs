//! Ending sessions: one, or all that match a filter, in steps. Gateways clean up what sessions leave at servers and on
//! volumes.

use super::{Act, ActFailure, ActOutcome, ActPreview, ActProgress, SAMPLE_MAX};
use crate::operator::{Operator, OperatorIdentity};
use crate::operator_error::OperatorError;
use crate::sessions::{
    SessionCursor, SessionFilter, SessionListRequest, SessionSearch, SessionSummary, StoredSession,
    list_sessions,
};
use mooring_session::Refusal;
use mooring_session::record::SessionState;
use mooring_session::rules::{EndCondition, EndRequest};
use mooring_settings::Right;
use mooring_store::{EndCause, HistoryEvent, PAGE_MAX, SessionKey, StoreError};

const ACT: Act = Act {
    name: "sessions.end",
    right: Right::SessionsManage,
};
/// Most sessions that one step ends.
const STEP_MAX: usize = 200;
/// Most sessions that a preview counts.
const COUNTED_MAX: u64 = 100_000;

/// What ending a session came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndOutcome {
    Ended,
    /// It had ended before.
    Unchanged,
}

impl Operator {
    /// What [`end_session`](Self::end_session) would do. Needs `sessions.manage`.
    ///
    /// # Errors
    /// Forbidden; that the name names no session, or several; or the store's.
    pub async fn preview_end(
        &self,
        operator: &OperatorIdentity,
        named: &str,
    ) -> Result<ActPreview, OperatorError> {
        self.require(operator, ACT.right)?;
        let found = self.find(named).await?;
        let is_active = found.record.state == SessionState::Active;
        Ok(ActPreview {
            act: ACT.name.to_owned(),
            effect: match is_active {
                true => "the session ends, also while it is in use".to_owned(),
                false => "nothing: the session has ended before".to_owned(),
            },
            sessions: u64::from(is_active),
            sample: vec![SessionSummary::of(&found)],
            complete: true,
        })
    }

    /// Ends the session that is `named` so, also while it is in use. Needs `sessions.manage`.
    ///
    /// # Errors
    /// Forbidden; that the name names no session, or several; or the store's.
    pub async fn end_session(
        &self,
        operator: &OperatorIdentity,
        named: &str,
    ) -> Result<ActProgress, OperatorError> {
        let look_up = async {
            let found = self.find(named).await?;
            Ok((found.key.digest().into(), found.key))
        };
        let doing = async |key: SessionKey| {
            let ended = self.end(&key).await?;
            let words = match ended {
                EndOutcome::Ended => "ended",
                EndOutcome::Unchanged => "had ended before",
            };
            Ok(ActOutcome {
                words: words.to_owned(),
                changed: u64::from(ended == EndOutcome::Ended),
                ..ActOutcome::default()
            })
        };
        self.perform(operator, ACT, look_up, doing).await
    }

    /// What [`end_sessions`](Self::end_sessions), repeated, would do. Needs `sessions.manage`.
    ///
    /// # Errors
    /// Forbidden, or the store's.
    pub async fn preview_end_all(
        &self,
        operator: &OperatorIdentity,
        filter: &SessionFilter,
    ) -> Result<ActPreview, OperatorError> {
        self.require(operator, ACT.right)?;
        let mut request = to_end(filter, PAGE_MAX);
        let mut preview = ActPreview {
            act: ACT.name.to_owned(),
            effect: "the sessions end, also those that are in use".to_owned(),
            sessions: 0,
            sample: Vec::new(),
            complete: true,
        };
        loop {
            let page = list_sessions(self.store(), &request, |_| {}).await?;
            preview.complete &= page.complete;
            preview.sessions += u64::try_from(page.sessions.len()).unwrap_or(u64::MAX);
            let room = SAMPLE_MAX.saturating_sub(preview.sample.len());
            preview.sample.extend(page.sessions.into_iter().take(room));
            let next = page.next_cursor.as_deref();
            request.cursor = next.and_then(SessionCursor::parse);
            if request.cursor.is_none() {
                return Ok(preview);
            }
            if preview.sessions >= COUNTED_MAX {
                preview.complete = false;
                return Ok(preview);
            }
        }
    }

    /// Ends some of the active sessions that match: a step. Repeated until none is left, it ends all. Needs
    /// `sessions.manage`.
    ///
    /// # Errors
    /// Forbidden, or the store's; sessions that were ended before it stay ended.
    pub async fn end_sessions(
        &self,
        operator: &OperatorIdentity,
        search: &SessionSearch,
    ) -> Result<ActProgress, OperatorError> {
        let look_up = async {
            let filter = search.filter()?;
            let mut keys = Vec::new();
            let note = |found: &StoredSession| keys.push(found.key.clone());
            let page = list_sessions(self.store(), &to_end(&filter, STEP_MAX), note).await?;
            Ok((search.to_text(), (keys, page.next_cursor.is_some())))
        };
        let doing = async |(keys, is_left): (Vec<SessionKey>, bool)| {
            let mut changed = 0_u64;
            for key in &keys {
                match self.end(key).await {
                    Ok(EndOutcome::Ended) => changed += 1,
                    // It ended meanwhile.
                    Ok(EndOutcome::Unchanged) | Err(OperatorError::SessionNotFound) => {}
                    Err(error) => {
                        return Err(ActFailure {
                            words: format!("{changed} ended; {error}"),
                            error,
                        });
                    }
                }
            }
            Ok(ActOutcome {
                words: format!("{changed} ended"),
                changed,
                is_left,
                detail: None,
            })
        };
        self.perform(operator, ACT, look_up, doing).await
    }

    async fn end(&self, key: &SessionKey) -> Result<EndOutcome, OperatorError> {
        let request = EndRequest {
            principal: None,
            when: EndCondition::Always,
        };
        match self.store().end(key, &request).await {
            Ok(ended) if ended.ended_now => {
                let cause = EndCause::Operator;
                self.store()
                    .note(&key.digest(), HistoryEvent::Ended { cause });
                Ok(EndOutcome::Ended)
            }
            Ok(_) => Ok(EndOutcome::Unchanged),
            Err(StoreError::Refused(Refusal::NoSession)) => Err(OperatorError::SessionNotFound),
            Err(error) => Err(error.into()),
        }
    }
}

/// The active sessions that match.
fn to_end(filter: &SessionFilter, limit: usize) -> SessionListRequest {
    SessionListRequest {
        filter: SessionFilter {
            state: Some(SessionState::Active),
            ..filter.clone()
        },
        limit,
        ..SessionListRequest::default()
    }
}
