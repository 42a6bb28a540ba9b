//! Metrics of command-line agents.

use std::time::Duration;

use metrics::histogram;

metrics! {
    pub(super) fn describe;
    /// Time of one run of an agent's program, by outcome.
    RUN_SECONDS = histogram("mooring_agent_run_duration_seconds");
}

/// How a run of an agent's program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AgentOutcome {
    /// It did what it was asked, as far as it says.
    Completed,
    /// It failed, or says so.
    Failed,
    /// It took too long.
    TimedOut,
    /// Its client cancelled it, or the gateway stopped.
    Cancelled,
    /// It printed too much, or the connection to it broke.
    Broken,
}

/// A run has ended.
pub fn agent_run(outcome: AgentOutcome, took: Duration) {
    histogram!(RUN_SECONDS, "outcome" => <&'static str>::from(outcome)).record(took.as_secs_f64());
}
