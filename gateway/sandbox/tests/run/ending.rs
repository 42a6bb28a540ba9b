//! What ends a run before its program does.

use std::os::fd::AsFd;
use std::thread;

use mooring_sandbox::{RunEnd, StopHandle, StopReason};

use crate::support::{
    self, DEAF_TREE, Ground, Turn, WAIT, limits, python, read_upper,
    run_python_until_its_wall_time, sandbox, text, wait_until,
};

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
    assert_eq!(
        read_upper(outcome.changes.scratch.as_fd(), "kept"),
        "kept",
        "what it wrote in time is kept"
    );
    // That nothing is left of it is looked at when the turn ends.
}

#[test]
fn a_run_is_stopped_when_somebody_asks() {
    let _turn = Turn::take();
    let stop = StopHandle::new().unwrap();
    let ground = Ground::new();
    let job = ground.job(python(DEAF_TREE), limits());
    let asking = stop.clone();
    let own = std::process::id() as i32;
    let outcome = thread::scope(|scope| {
        let run = scope.spawn(|| sandbox().run(job, &stop));
        // The helper, process 1, the program and its forty.
        wait_until("the tree", || support::descendants(own).len() >= 43);
        asking.ask();
        run.join().expect("the run's thread")
    })
    .expect("the run was made");
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::Asked));
}

#[test]
fn a_stop_that_was_asked_for_before_ends_the_run_at_once() {
    let _turn = Turn::take();
    let stop = StopHandle::new().unwrap();
    stop.ask();
    assert!(stop.is_asked());
    let outcome = sandbox()
        .run(Ground::new().job(python(DEAF_TREE), limits()), &stop)
        .unwrap();
    assert_eq!(outcome.ended, RunEnd::Stopped(StopReason::Asked));
    assert!(outcome.usage.wall_time < WAIT);
}
