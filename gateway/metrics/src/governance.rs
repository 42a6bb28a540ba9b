//! The metrics of records of runs, of security events and of skills.

use metrics::counter;
use strum::VariantArray as _;

metrics! {
    pub(super) fn describe;
    /// Records that were not written, by record.
    RECORD_FAILURES = counter("mooring_code_record_failures_total").zero("record", Record::VARIANTS);
    /// Runs whose worker died with them, as this worker ended their records.
    RUNS_LOST = counter("mooring_code_runs_lost_total").zero();
    /// Security events of code servers, by kind.
    EVENTS = counter("mooring_code_security_events_total");
    /// Records removed by age or number, by record.
    PRUNED = counter("mooring_code_records_pruned_total").zero("record", ["run", "event"]);
    /// Changes of skills, by change.
    SKILLS = counter("mooring_code_skill_changes_total");
    /// Replays of recorded runs, by mode and outcome.
    REPLAYS = counter("mooring_code_replays_total");
}

/// A record that was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Record {
    /// The beginning or the end of a run.
    Run,
    /// The calls of a run: some of them are not in its record.
    Calls,
    /// A security event.
    Event,
    /// An event or a blocked run beyond the number of a minute.
    Flood,
}

/// A record was not written.
pub fn code_record_failed(record: Record) {
    counter!(RECORD_FAILURES, "record" => <&'static str>::from(record)).increment(1);
}

/// So many records of runs that died with their worker were ended.
pub fn code_runs_lost(count: u64) {
    counter!(RUNS_LOST).increment(count);
}

/// A security event. `kind` is one of a fixed few.
pub fn code_security_event(kind: &'static str) {
    counter!(EVENTS, "kind" => kind).increment(1);
}

/// So many records were removed.
pub fn code_records_pruned(runs: usize, events: usize) {
    for (record, count) in [("run", runs), ("event", events)] {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        counter!(PRUNED, "record" => record).increment(count);
    }
}

/// A skill was changed. `change` is one of a fixed few.
pub fn code_skill_changed(change: &'static str) {
    counter!(SKILLS, "change" => change).increment(1);
}

/// A run was run again. Both are one of a fixed few.
pub fn code_replayed(mode: &'static str, outcome: &'static str) {
    counter!(REPLAYS, "mode" => mode, "outcome" => outcome).increment(1);
}
