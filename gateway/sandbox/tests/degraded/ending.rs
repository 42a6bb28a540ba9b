//! What ends a run, and that all of it ends.

use std::thread;
use std::time::Duration;

use mooring_sandbox::{Limits, RunEnd, StopHandle, StopReason};

use crate::support::{
    self, Ground, Turn, WAIT, limits, python, run_python, run_python_until_its_wall_time, sandbox,
    text, wait_until,
};

/// Forty processes that try to leave, each deaf to every signal that one can be deaf to; orphans among them.
pub(crate) const DEAF_TREE: &str = r"
import os, signal, time
def stay():
    try:
        os.setsid()
    except OSError:
        pass
    while True:
        time.sleep(600)
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for number in range(40):
    if os.fork() == 0:
        if number % 2 and os.fork() != 0:
            os._exit(0)
        stay()
open('kept', 'w').write('kept')
os.write(1, b'forked')
while True:
    time.sleep(600)
";

#[test]
fn a_deaf_tree_is_dead_after_the_wall_time() {
    let _turn = Turn::take();
    let outcome = run_python_until_its_wall_time(DEAF_TREE);
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::WallTime));
    assert_eq!(
        text(&outcome.stdout.bytes),
        "forked",
        "{}",
        text(&outcome.stderr.bytes)
    );
    // That nothing is left of it is looked at when the turn ends.
}

#[test]
fn a_tree_is_dead_when_somebody_asks() {
    let _turn = Turn::take();
    let stop = StopHandle::new().unwrap();
    let ground = Ground::new();
    let job = ground.job(python(DEAF_TREE), limits());
    let asking = stop.clone();
    let own = std::process::id() as i32;
    let outcome = thread::scope(|scope| {
        let run = scope.spawn(|| sandbox().run(job, &stop));
        // The helper, the leader, the program and its forty.
        wait_until("the tree", || support::descendants(own).len() >= 43);
        asking.ask();
        run.join().expect("the run's thread")
    })
    .expect("the run was made");
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::Asked));
}

#[test]
fn a_daemon_dies_with_the_program_and_keeps_no_stream_open() {
    let _turn = Turn::take();
    let source = "import os, time\nif os.fork() == 0:\n    if os.fork() != 0:\n        os._exit(0)\n    \
                  try:\n        os.setsid()\n    except OSError:\n        pass\n    time.sleep(600)\nos.wait()\nprint('main')";
    let outcome = run_python(source, limits());
    assert_eq!(outcome.ended, RunEnd::Exited(0));
    assert_eq!(text(&outcome.stdout.bytes), "main\n");
    assert!(outcome.usage.wall_time < WAIT);
}

/// What a program does to its own group, its leader included, is the end of the run at most.
#[test]
fn a_program_that_signals_its_group_ends_only_itself() {
    let _turn = Turn::take();
    let outcome = run_python(
        "import os, signal\nif os.fork() == 0:\n    signal.pause()\nos.killpg(0, 15)",
        limits(),
    );
    assert_eq!(outcome.ended, RunEnd::Signalled(15));
    for source in [
        "import os\nos.kill(os.getppid(), 9)\nos.fork()\nwhile True:\n    pass",
        "import os\nos.killpg(0, 9)",
        "import os, time\nos.kill(os.getppid(), 12)\ntime.sleep(600)",
    ] {
        let outcome = run_python(source, limits());
        assert_eq!(outcome.ended, RunEnd::Signalled(9), "{source}");
    }
    // A leader that is stopped is killed all the same.
    let stopped = Limits {
        wall_time: Duration::from_millis(500),
        ..limits()
    };
    let outcome = run_python(
        "import os, time\nos.kill(os.getppid(), 19)\nos.fork()\ntime.sleep(600)",
        stopped,
    );
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::WallTime));
}

#[test]
fn a_fork_bomb_stays_within_its_processes() {
    let _turn = Turn::take();
    let source = "import os, time\nforked = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            \
                  time.sleep(600)\n        forked += 1\nexcept OSError:\n    print(forked)";
    let limits_of_bomb = Limits {
        processes: 20,
        ..limits()
    };
    let outcome = run_python(source, limits_of_bomb);
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
    assert!((1..=24).contains(&forked), "{forked}");
    assert_eq!(
        run_python("import os\nos.fork()", limits()).ended,
        RunEnd::Exited(0),
        "the next run has all of its processes"
    );
}

#[test]
fn a_flood_of_output_is_drained_and_cut() {
    let _turn = Turn::take();
    let source = "import os\nfor _ in range(256):\n    os.write(1, b'o' * 65536)\n    os.write(2, b'e' * 65536)";
    let outcome = run_python(source, limits());
    assert_eq!(outcome.ended, RunEnd::Exited(0));
    for stream in [&outcome.stdout, &outcome.stderr] {
        assert_eq!(stream.bytes.len(), limits().output_bytes);
        assert_eq!(stream.written_bytes, 16 << 20);
    }
}

#[test]
fn memory_is_bounded() {
    let _turn = Turn::take();
    let source = "import mmap\nheld = []\nfor _ in range(400):\n    held.append(mmap.mmap(-1, 1 << 20))\n    \
                  held[-1].write(b'x' * (1 << 20))";
    let outcome = run_python(source, limits());
    assert!(
        matches!(
            outcome.ended,
            RunEnd::Stopped(StopReason::Memory) | RunEnd::Exited(1)
        ),
        "{:?}",
        outcome.ended
    );
}
