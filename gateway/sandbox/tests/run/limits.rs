//! What a run may use.

use std::time::Duration;

use mooring_sandbox::{Layer, Limits, RunEnd, StopReason};

use crate::support::{Turn, has_group, limits, run_python, sandbox, text};

const MIB: u64 = 1024 * 1024;

#[test]
fn processors_are_not_used_beyond_the_limit_by_many_together() {
    let _turn = Turn::take();
    let source = "import os\nfor _ in range(3):\n    os.fork()\nwhile True:\n    pass";
    let cpu_time = Duration::from_millis(500);
    let outcome = run_python(
        source,
        Limits {
            cpu_time,
            ..limits()
        },
    );
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::CpuTime));
    assert!(outcome.usage.cpu_time >= cpu_time, "{:?}", outcome.usage);
    assert!(outcome.usage.cpu_time < cpu_time * 4, "{:?}", outcome.usage);
}

#[test]
fn a_share_of_a_processor_is_a_share() {
    let _turn = Turn::take();
    if !has_group() {
        // Without a control group the share is not claimed: the layers say `watchdog`.
        assert!(sandbox().layers().contains(&Layer::Watchdog));
        return;
    }
    let limits = Limits {
        wall_time: Duration::from_secs(2),
        cpu_percent: 20,
        ..limits()
    };
    let outcome = run_python("while True:\n    pass", limits);
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::WallTime));
    // A fifth of two seconds, and some for the period in which it ended and for the start.
    assert!(
        outcome.usage.cpu_time < Duration::from_millis(600),
        "{:?}",
        outcome.usage
    );
}

/// Takes memory until it is refused, and says how much it had.
fn memory_hog(take: &str) -> String {
    format!(
        "import mmap, os, sys\nheld = []\ntry:\n    for count in range(400):\n        {take}\n        \
         os.write(1, b'.')\nexcept (MemoryError, OSError):\n    sys.exit(3)\n"
    )
}

/// In steps of a MiB, 400 of them, where 256 are allowed: most of these are had, then it is stopped, or refused inside.
fn check_memory(take: &str) {
    let outcome = run_python(&memory_hog(take), limits());
    let got = outcome.stdout.written_bytes;
    let is_bounded = matches!(
        outcome.ended,
        RunEnd::Stopped(StopReason::Memory) | RunEnd::Exited(3 | 1)
    );
    assert!(
        is_bounded && (100..400).contains(&got),
        "{:?} after {got} MiB {}",
        outcome.ended,
        text(&outcome.stderr.bytes)
    );
}

#[test]
fn private_memory_is_bounded() {
    let _turn = Turn::take();
    check_memory("held.append(bytearray(os.urandom(1) * (1 << 20)))");
}

#[test]
fn shared_memory_is_bounded() {
    let _turn = Turn::take();
    check_memory("held.append(mmap.mmap(-1, 1 << 20)); held[-1].write(b'x' * (1 << 20))");
}

#[test]
fn memory_behind_a_descriptor_is_refused() {
    let _turn = Turn::take();
    let hog = memory_hog(
        "file = os.memfd_create('m'); held.append(file); os.write(file, b'x' * (1 << 20))",
    );
    let outcome = run_python(&hog, limits());
    assert_eq!(
        (outcome.ended, outcome.stdout.written_bytes),
        (RunEnd::Exited(3), 0),
        "{}",
        text(&outcome.stderr.bytes)
    );
}

#[test]
fn memory_of_many_processes_is_counted_together() {
    let _turn = Turn::take();
    let source = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        \
                  held = bytearray(b'x' * (60 << 20))\n        time.sleep(600)\ntime.sleep(600)";
    let outcome = run_python(source, limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Stopped(StopReason::Memory),
        "{}",
        text(&outcome.stderr.bytes)
    );
}

#[test]
fn what_files_may_take_is_not_memorys() {
    let _turn = Turn::take();
    let limits = Limits {
        memory_bytes: 64 * MIB,
        disk_bytes: 256 * MIB,
        ..limits()
    };
    let source = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        \
                  held = bytearray(b'x' * (50 << 20))\n        time.sleep(600)\ntime.sleep(600)";
    let outcome = run_python(source, limits);
    assert_eq!(
        outcome.ended,
        RunEnd::Stopped(StopReason::Memory),
        "{}",
        text(&outcome.stderr.bytes)
    );
}

#[test]
fn files_are_not_counted_as_memory() {
    let _turn = Turn::take();
    let limits = Limits {
        memory_bytes: 64 * MIB,
        disk_bytes: 128 * MIB,
        ..limits()
    };
    let source = "for number in range(10):\n    open(f'/scratch/{number}', 'wb').write(b'x' * (9 << 20))\n\
                  import time\ntime.sleep(0.2)\nprint('kept')";
    let outcome = run_python(source, limits);
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(text(&outcome.stdout.bytes), "kept\n");
}

#[test]
fn a_fork_bomb_stays_within_its_processes() {
    let _turn = Turn::take();
    let source = "import os, time\nforked = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            \
                  time.sleep(600)\n        forked += 1\nexcept OSError:\n    print(forked)";
    let outcome = run_python(
        source,
        Limits {
            processes: 20,
            ..limits()
        },
    );
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    let forked: u32 = text(&outcome.stdout.bytes)
        .trim()
        .parse()
        .expect("a number");
    assert!((1..=20).contains(&forked), "{forked}");
    // The next run has all of its processes.
    assert_eq!(
        run_python("import os\nos.fork()", limits()).ended,
        RunEnd::Exited(0)
    );
}
