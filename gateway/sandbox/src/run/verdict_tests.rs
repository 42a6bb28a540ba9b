//! The table of endings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn exited(code: i32) -> Option<ExitStatus> {
    Some(ExitStatus::from_raw(code << 8))
}

fn signalled(signal: Signal) -> Option<ExitStatus> {
    Some(ExitStatus::from_raw(signal.as_raw()))
}

fn check(
    stopped: Option<StopReason>,
    status: Option<ExitStatus>,
    cpu_time: Duration,
    expected: RunEnd,
) {
    let facts = Facts {
        stopped,
        status,
        was_out_of_memory: false,
        cpu_time,
        cpu_time_max: LIMIT,
    };
    assert_eq!(facts.verdict(), expected, "{facts:?}");
    let facts = Facts {
        was_out_of_memory: true,
        ..facts
    };
    assert_eq!(
        facts.verdict(),
        RunEnd::Stopped(StopReason::Memory),
        "{facts:?}"
    );
}

#[test]
fn every_ending_has_its_word() {
    let little = Duration::from_secs(1);
    check(None, exited(0), little, RunEnd::Exited(0));
    check(None, exited(1), LIMIT, RunEnd::Exited(1));
    check(
        Some(StopReason::WallTime),
        exited(3),
        little,
        RunEnd::Exited(3),
    );
    check(
        Some(StopReason::WallTime),
        signalled(Signal::KILL),
        little,
        RunEnd::Stopped(StopReason::WallTime),
    );
    check(
        Some(StopReason::WallTime),
        None,
        LIMIT,
        RunEnd::Stopped(StopReason::WallTime),
    );
    check(
        Some(StopReason::Asked),
        None,
        little,
        RunEnd::Stopped(StopReason::Asked),
    );
    check(
        Some(StopReason::Memory),
        signalled(Signal::KILL),
        little,
        RunEnd::Stopped(StopReason::Memory),
    );
    check(
        None,
        signalled(Signal::XCPU),
        little,
        RunEnd::Stopped(StopReason::CpuTime),
    );
    check(
        None,
        signalled(Signal::KILL),
        LIMIT,
        RunEnd::Stopped(StopReason::CpuTime),
    );
    check(None, signalled(Signal::KILL), little, RunEnd::Signalled(9));
    check(None, signalled(Signal::ABORT), LIMIT, RunEnd::Signalled(6));
    check(None, None, little, RunEnd::Signalled(9));
}
