//! The stored record of a run: its start, in a file that never changes, and its end, in one that is made once.
//!
//! Invariant: both files have a version. A later one is not read, and counts as an existing record.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::{EnumString, VariantNames};

use super::call_lines::CallMade;
use super::events::StoredEvent;
use super::versioned::{cut, version};
use mooring_metrics::RunOutcome;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, EnumString, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunStatus {
    /// No end is recorded yet.
    Running,
    /// It ended with exit code 0.
    Completed,
    /// It ended otherwise, or did not get to run.
    Failed,
    /// It took longer than it may.
    TimedOut,
    /// It was refused before it ran.
    Blocked,
    /// It used more than it may, or was asked to stop.
    Killed,
    /// Its gateway ended before it did.
    Lost,
}

impl From<RunOutcome> for RunStatus {
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Completed => Self::Completed,
            RunOutcome::Failed => Self::Failed,
            RunOutcome::TimedOut => Self::TimedOut,
            RunOutcome::Blocked => Self::Blocked,
            RunOutcome::Killed => Self::Killed,
        }
    }
}

/// The record's first part: what was known when the run started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    #[serde(deserialize_with = "version")]
    pub(super) version: u32,
    /// The run's id.
    pub id: String,
    /// The server whose run it is.
    pub(crate) server_id: String,
    /// The code session; none where the run never came to one.
    pub(crate) session_id: Option<String>,
    /// The principal.
    pub user_email: String,
    /// The principal's teams.
    pub(crate) token_teams: Vec<String>,
    /// The team that the server belongs to, where there is one.
    #[serde(default)]
    pub(crate) team_id: Option<String>,
    /// `python` or `typescript`.
    pub(crate) language: String,
    /// The runtime: `python`, `deno` or `shell`.
    pub(crate) runtime: String,
    /// SHA-256 of the code, in hexadecimal digits.
    pub(crate) code_hash: String,
    /// Its length.
    pub(crate) code_size_bytes: u64,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    /// Name and boot id of the gateway.
    pub(crate) worker: String,
    /// The longest time that the call asked for.
    pub(crate) timeout_ms: Option<u64>,
    /// The run that this one repeats.
    pub(crate) replayed_from_run_id: Option<String>,
    /// How: `recorded` or `live`.
    pub(crate) replay_mode: Option<String>,
}

/// The record's second part: how the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedEnd {
    #[serde(deserialize_with = "version")]
    pub(super) version: u32,
    /// Never `running`.
    pub(crate) status: RunStatus,
    /// When, in milliseconds since 1970.
    pub(crate) finished_at_ms: u64,
    /// The metrics that the answer had: exit code, signal, times, memory, bytes, limits hit, isolation, files.
    pub(crate) metrics: Map<String, Value>,
    /// The tools that the code called, in the order in which it did.
    pub(crate) tool_calls_made: Vec<CallMade>,
    /// How many it called, also where not all of them are listed.
    pub(crate) tool_calls_total: u64,
    /// Its security events.
    pub(crate) security_events: Vec<StoredEvent>,
    /// How many such events there were, also where not all of them are listed.
    pub(crate) security_events_total: u64,
    /// Whether the record of the calls has all of them with all they returned.
    pub(crate) are_calls_complete: bool,
    /// Whether code or output is missing because the volume had too little free space.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) are_bodies_omitted: bool,
}

/// The output of the run, and its error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Texts {
    /// Its standard output.
    pub(crate) output: String,
    /// Its standard error, and why it did not complete.
    pub(crate) error: Option<String>,
}

impl Texts {
    /// Both, cut to `chars_max` characters each, with a mark where something was cut.
    pub(super) fn cut(output: &str, error: Option<&str>, chars_max: usize) -> Self {
        Self {
            output: cut(output, chars_max),
            error: error.map(|error| cut(error, chars_max)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in RunStatus::VARIANTS {
            let status: Option<RunStatus> = word.parse().ok();
            assert_eq!(serde_json::to_value(status).ok(), Some(Value::from(*word)));
        }
        assert_eq!("gone".parse::<RunStatus>().ok(), None);
    }
}
