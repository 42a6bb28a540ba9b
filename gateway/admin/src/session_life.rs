//! What has happened to a session, and what its calls wait for.
//!
//! Invariant: a history is shown as long as the store keeps it, also when the store has forgotten the session.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use super::sessions::SessionName;
use mooring_session::Refusal;
use mooring_settings::Right;
use mooring_store::{HistoryEntry, StoreError, unix_now_ms};

/// The history of a session, oldest entry first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionHistory {
    /// The digest of the session.
    pub session: String,
    /// What happened; the oldest entries of a long life are not kept.
    pub entries: Vec<SessionEvent>,
}

/// Something that happened to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionEvent {
    /// When (RFC 3339); of equal events in a row, the last one.
    pub at: String,
    /// The gateway that noted it.
    pub gateway: String,
    /// What kind of event it is, in a word.
    pub kind: String,
    /// What happened, as a sentence.
    pub sentence: String,
    /// How often it happened in a row.
    pub times: u64,
    /// Its facts by name, which depend on the kind.
    pub facts: Map<String, Value>,
}

/// What calls of a session wait for, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionWaits {
    /// The digest of the session.
    pub session: String,
    /// Who has the turns, who waits and since when, and what else keeps calls from running: a sentence each.
    pub sentences: Vec<String>,
}

impl From<&HistoryEntry> for SessionEvent {
    fn from(entry: &HistoryEntry) -> Self {
        let view = entry.view();
        Self {
            at: view.at.into(),
            gateway: view.gateway.into(),
            kind: view.kind.into(),
            sentence: view.sentence.into(),
            times: view.times,
            facts: view.facts,
        }
    }
}

impl Operator {
    /// What has happened to a session, `named` as in [`session`](Self::session). Needs `sessions.read`.
    ///
    /// # Errors
    /// As of [`session`](Self::session); a session that the store has forgotten is found by its whole digest, as long as its
    /// history is kept.
    pub async fn session_history(
        &self,
        operator: &OperatorIdentity,
        named: &str,
    ) -> Result<SessionHistory, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        let (session, is_forgotten) = match (self.find(named).await, SessionName::parse(named)?) {
            (Ok(found), _) => (found.key.digest().into(), false),
            (Err(OperatorError::SessionNotFound), SessionName::Digest(digest)) => {
                (digest.to_owned(), true)
            }
            (Err(error), _) => return Err(error),
        };
        let entries = self.store().history_of(&session).await?;
        if is_forgotten && entries.is_empty() {
            return Err(OperatorError::SessionNotFound);
        }
        Ok(SessionHistory {
            session,
            entries: entries.iter().map(SessionEvent::from).collect(),
        })
    }

    /// What calls of a session wait for, `named` as in [`session`](Self::session). Needs `sessions.read`.
    ///
    /// # Errors
    /// As of [`session`](Self::session).
    pub async fn session_waits(
        &self,
        operator: &OperatorIdentity,
        named: &str,
    ) -> Result<SessionWaits, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        let found = self.find(named).await?;
        let blockers = match self.store().blockers(&found.key).await {
            Err(StoreError::Refused(Refusal::NoSession)) => {
                return Err(OperatorError::SessionNotFound);
            }
            blockers => blockers?,
        };
        Ok(SessionWaits {
            session: found.key.digest().into(),
            sentences: blockers.sentences(unix_now_ms()),
        })
    }
}
