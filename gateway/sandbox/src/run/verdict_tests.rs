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
    stopped: Option<Stopped>,
    status: Option<ExitStatus>,
    cpu_time: Duration,
    expected: Ended,
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
        Ended::Stopped(Stopped::Memory),
        "{facts:?}"
    );
}

#[test]
fn every_ending_has_its_word() {
    let little = Duration::from_secs(1);
    check(None, exited(0), little, Ended::Exited(0));
    check(None, exited(1), LIMIT, Ended::Exited(1));
    check(Some(Stopped::WallTime), exited(3), little, Ended::Exited(3));
    check(
        Some(Stopped::WallTime),
        signalled(Signal::KILL),
        little,
        Ended::Stopped(Stopped::WallTime),
    );
    check(
        Some(Stopped::WallTime),
        None,
        LIMIT,
        Ended::Stopped(Stopped::WallTime),
    );
    check(
        Some(Stopped::Asked),
        None,
        little,
        Ended::Stopped(Stopped::Asked),
    );
    check(
        Some(Stopped::Memory),
        signalled(Signal::KILL),
        little,
        Ended::Stopped(Stopped::Memory),
    );
    check(
        None,
        signalled(Signal::XCPU),
        little,
        Ended::Stopped(Stopped::CpuTime),
    );
    check(
        None,
        signalled(Signal::KILL),
        LIMIT,
        Ended::Stopped(Stopped::CpuTime),
    );
    check(None, signalled(Signal::KILL), little, Ended::Signalled(9));
    check(None, signalled(Signal::ABORT), LIMIT, Ended::Signalled(6));
    check(None, None, little, Ended::Signalled(9));
}
