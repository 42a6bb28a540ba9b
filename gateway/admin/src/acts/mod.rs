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

impl Operator {
    /// Changes what is wanted of the fleet, if `is_change`; with the audit line.
    async fn change(
        &self,
        operator: &OperatorIdentity,
        act: &'static str,
        subject: String,
        change: DesiredChange,
        is_change: bool,
    ) -> Result<ActProgress, OperatorError> {
        let changed = match is_change {
            true => self.store().change_desired_state(None, &[change]).await,
            false => Ok(self.store().desired_state()),
        };
        let outcome = match &changed {
            Ok(_) if is_change => "done".to_owned(),
            Ok(_) => "unchanged".to_owned(),
            Err(error) => error.to_string(),
        };
        self.audit(operator, act, &subject, &outcome);
        changed?;
        Ok(ActProgress {
            act: act.to_owned(),
            subject,
            changed: u64::from(is_change),
            is_left: false,
            detail: None,
        })
    }
}
