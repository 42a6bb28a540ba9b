//! What operators do: each act says what it would do, does it in bounded steps, and leaves an audit line.
//!
//! Invariant: an act that is interrupted between two steps has done whole steps, and can be repeated.

mod end;

use schemars::JsonSchema;
use serde::Serialize;

use super::sessions::SessionSummary;

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
