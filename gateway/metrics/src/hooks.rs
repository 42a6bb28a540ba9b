//! The metrics of hooks around tool calls.

use std::time::Duration;

use metrics::{Counter, counter, describe_counter, describe_histogram, histogram};
use strum::VariantArray as _;

/// Answers of hooks, by `phase` and `outcome`.
const ANSWERS: &str = "mooring_hook_answers_total";
/// Time from a question to a hook to its answer, by `phase`.
const SECONDS: &str = "mooring_hook_duration_seconds";

/// Every metric of this file.
#[cfg(test)]
pub(super) const ALL: [&str; 2] = [ANSWERS, SECONDS];

pub(super) fn describe() {
    describe_counter!(ANSWERS, "Answers of hooks, by phase and outcome");
    describe_histogram!(SECONDS, "Question to a hook to its answer");
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
