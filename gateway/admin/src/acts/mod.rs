//! What operators do: each act says what it would do, does it in bounded steps, and leaves an audit line.
//!
//! Invariant: an act that is interrupted between two steps has done whole steps, and can be repeated.

mod drain;
mod end;
mod move_session;
mod park;

pub use self::drain::DrainChange;
pub use self::move_session::SessionMove;
pub use self::park::{ParkChange, ParkRequest};

use schemars::JsonSchema;
use serde::Serialize;

use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use super::sessions::SessionSummary;
use mooring_settings::Right;
use mooring_store::DesiredChange;

/// Most sessions that a preview names.
pub(crate) const SAMPLE_MAX: usize = 20;

/// What an act would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ActPreview {
    /// The act, as in audit lines.
    pub act: String,
    /// What would happen, in a sentence.
    pub effect: String,
    /// How many sessions it concerns.
    pub sessions: u64,
    /// Some of them.
    pub sample: Vec<SessionSummary>,
    /// Whether all of them were counted.
    pub complete: bool,
}

/// What an act has done, or a step of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ActProgress {
    /// The act, as in audit lines.
    pub act: String,
    /// On what: the digest of a session, the id of a gateway or server, or a filter.
    pub subject: String,
    /// How many things it has changed; 0 if all were so before.
    pub changed: u64,
    /// Whether the act has to be repeated for others.
    pub is_left: bool,
    /// What it came to, in words, where that is more.
    pub detail: Option<String>,
}

/// The reply to an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActReply {
    /// What it would do.
    Preview(ActPreview),
    /// What it has done.
    Progress(ActProgress),
}

/// The name of an act, and the right that it needs.
#[derive(Clone, Copy, Debug)]
struct Act {
    name: &'static str,
    right: Right,
}

/// What an act has done.
#[derive(Debug, Default)]
struct ActOutcome {
    /// For the audit line.
    words: String,
    changed: u64,
    is_left: bool,
    detail: Option<String>,
}

/// What an act has done before it failed, for the audit line, and why it failed.
#[derive(Debug)]
struct ActFailure {
    words: String,
    error: OperatorError,
}

impl<E: Into<OperatorError>> From<E> for ActFailure {
    fn from(error: E) -> Self {
        let error = error.into();
        Self {
            words: error.to_string(),
            error,
        }
    }
}

impl Operator {
    /// The frame of every act: the right, the look-up of its subject, the act itself, and its audit line. The look-up gives the
    /// subject in words, and what `doing` needs of it.
    async fn perform<T>(
        &self,
        operator: &OperatorIdentity,
        act: Act,
        look_up: impl Future<Output = Result<(String, T), OperatorError>>,
        doing: impl AsyncFnOnce(T) -> Result<ActOutcome, ActFailure>,
    ) -> Result<ActProgress, OperatorError> {
        self.require(operator, act.right)?;
        let (subject, found) = look_up.await?;
        let done = doing(found).await;
        let words = match &done {
            Ok(ActOutcome { words, .. }) | Err(ActFailure { words, .. }) => words,
        };
        self.audit(operator, act.name, &subject, words);
        let outcome = done.map_err(|failure| failure.error)?;
        Ok(ActProgress {
            act: act.name.to_owned(),
            subject,
            changed: outcome.changed,
            is_left: outcome.is_left,
            detail: outcome.detail,
        })
    }

    /// Changes what is wanted of the fleet; none if it is so already.
    async fn change(&self, change: Option<DesiredChange>) -> Result<ActOutcome, ActFailure> {
        let Some(change) = change else {
            return Ok(ActOutcome {
                words: "unchanged".to_owned(),
                ..ActOutcome::default()
            });
        };
        self.store().change_desired_state(None, &[change]).await?;
        Ok(ActOutcome {
            words: "done".to_owned(),
            changed: 1,
            ..ActOutcome::default()
        })
    }
}
