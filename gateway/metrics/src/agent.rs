//! Metrics of command-line agents.

use std::time::Duration;

use metrics::{describe_histogram, histogram};

/// Time of one run of an agent's program, by `outcome`.
pub(super) const RUN_SECONDS: &str = "mooring_agent_run_duration_seconds";

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

pub(super) fn describe() {
    describe_histogram!(RUN_SECONDS, "One run of a command-line agent's program");
}

/// A run has ended.
pub fn agent_run(outcome: AgentOutcome, took: Duration) {
    histogram!(RUN_SECONDS, "outcome" => <&'static str>::from(outcome)).record(took.as_secs_f64());
}
