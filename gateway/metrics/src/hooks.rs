//! The metrics of hooks around tool calls.

use std::time::Duration;

use metrics::{Counter, counter, histogram};
use strum::VariantArray as _;

metrics! {
    fn describe_rows;
    /// Answers of hooks, by phase and outcome.
    ANSWERS = counter("mooring_hook_answers_total");
    /// Time from a question to a hook to its answer, by phase.
    SECONDS = histogram("mooring_hook_duration_seconds");
}

pub(super) fn describe() {
    describe_rows();
    for phase in ["before", "after"] {
        for outcome in HookOutcome::VARIANTS.iter().copied() {
            answers(phase, outcome).absolute(0);
        }
    }
}

/// The answer of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HookOutcome {
    /// The call or its result is forwarded unchanged.
    Allowed,
    /// It is forwarded with changes.
    Changed,
    /// It is not forwarded.
    Refused,
    /// There was no valid answer in time.
    Failed,
}

/// A hook was asked in this phase, and answered after this time.
pub fn hook_answered(phase: &'static str, outcome: HookOutcome, elapsed: Duration) {
    answers(phase, outcome).increment(1);
    histogram!(SECONDS, "phase" => phase).record(elapsed.as_secs_f64());
}

fn answers(phase: &'static str, outcome: HookOutcome) -> Counter {
    counter!(ANSWERS, "phase" => phase, "outcome" => <&'static str>::from(outcome))
}
