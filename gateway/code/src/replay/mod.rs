//! Running a recorded run again.
//!
//! In `recorded` mode the tools are not called: [`FromRecord`] answers from the record, and says where the code calls
//! what the record does not have. In `live` mode the tools are called again, with all that this does; it has to be asked
//! for by name.
//!
//! Invariant: in `recorded` mode a replay sends nothing out of the sandbox.

mod from_record;
mod report;

use mooring_session::names::Principal;
use serde_json::Value;

pub(crate) use from_record::FromRecord;
pub(crate) use report::ReplayReport;

pub use crate::records::ReplayMode;
use crate::records::{RunId, RunRecord};

/// A replay as it is asked for.
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// The caller. The replay runs in this principal's session, and calls tools as this principal.
    pub principal: Principal,
    /// The principal's teams.
    pub teams: Vec<String>,
    /// The run to repeat: the asking principal may see it.
    pub run_id: RunId,
    /// How.
    pub mode: ReplayMode,
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct ReplayResult {
    /// The answer of the new run, as `shell_exec` gives it: with `replayed_from_run_id`.
    pub answer: Value,
    /// The new run's record.
    pub record: RunRecord,
    /// How it compares to the first.
    pub report: ReplayReport,
}

/// Why nothing was repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The settings do not allow it.
    #[error("replay is switched off")]
    Off,
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
    /// The run is still running.
    #[error("the run has not ended yet")]
    Running,
    /// Its code is not in the record, or the record cannot be read.
    #[error("the record of the run cannot be run again: {0}")]
    Record(&'static str),
    /// It was refused before it began, as a run of its own would have been; the message is the same.
    #[error("{0}")]
    Refused(String),
    /// Too much ran lately.
    #[error("rate limited: try again in {retry_after_ms} ms")]
    RateLimited {
        /// When, in milliseconds.
        retry_after_ms: u64,
    },
}

#[cfg(test)]
mod tests;
