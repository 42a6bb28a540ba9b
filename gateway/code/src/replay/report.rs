//! How a replay compares to what was recorded.

use serde_json::{Value, json};

use super::ReplayMode;
use super::from_record::{Divergence, FromRecord};
use crate::records::{RunStatus, WholeRun};

/// How a replay compares to what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayReport {
    /// The run that was repeated.
    pub(crate) replayed_from_run_id: String,
    /// How.
    pub(crate) mode: ReplayMode,
    /// Whether it printed the same, as far as both are kept.
    pub(crate) is_same_output: bool,
    /// Whether its error is the same.
    pub(crate) is_same_error: bool,
    /// How the recorded run ended.
    pub(crate) recorded_status: RunStatus,
    /// How the replay did.
    pub(crate) status: RunStatus,
    /// Where it called other tools than were recorded, or otherwise; none are looked for in `live` mode.
    pub(crate) divergences: Vec<Divergence>,
    /// How many such places there are, also where not all are listed.
    pub(crate) divergences_total: u64,
    /// Whether the record had all calls with all they returned.
    pub(crate) is_record_complete: bool,
}

impl ReplayReport {
    /// Compares two runs. `from` is what answered the calls of a replay in `recorded` mode.
    pub(crate) fn compare(
        recorded: &WholeRun,
        replay: &WholeRun,
        from: Option<&FromRecord>,
    ) -> Self {
        let (divergences, divergences_total) =
            from.map(FromRecord::divergences).unwrap_or_default();
        Self {
            replayed_from_run_id: recorded.record.begun.id.clone(),
            mode: from.map_or(ReplayMode::Live, |_| ReplayMode::Recorded),
            is_same_output: recorded.texts.output == replay.texts.output,
            is_same_error: recorded.texts.error == replay.texts.error,
            recorded_status: recorded.record.status(),
            status: replay.record.status(),
            divergences,
            divergences_total,
            is_record_complete: recorded.calls.is_complete,
        }
    }

    /// Whether the replay is what was recorded, in all that is compared.
    pub fn is_same(&self) -> bool {
        self.is_same_output
            && self.is_same_error
            && self.status == self.recorded_status
            && self.divergences_total == 0
    }

    /// As answers have it.
    pub fn to_json(&self) -> Value {
        json!({
            "replayed_from_run_id": self.replayed_from_run_id,
            "mode": self.mode,
            "same": self.is_same(),
            "same_output": self.is_same_output,
            "same_error": self.is_same_error,
            "recorded_status": self.recorded_status,
            "status": self.status,
            "divergences": self.divergences,
            "divergences_total": self.divergences_total,
            "record_complete": self.is_record_complete,
        })
    }
}
