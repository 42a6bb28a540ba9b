//! Runs that do not end by themselves in time, or not alone: nothing of them is left.

use std::path::Path;

use super::*;
use mooring_test_support::processes::{PAUSE, is_alive, kill, until_dead};

/// A child that heeds nothing and has a daemon that heeds nothing; the processes of both are written to the file, and
/// then the program goes on with what is given.
fn with_daemon(pids: &Path, then: &str) -> RunSpec {
    let script = format!(
        "import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
me = os.getpid()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + '.new', 'w') as file:
            file.write(f'{{me}} {{os.getpid()}}')
        os.rename(sys.argv[1] + '.new', sys.argv[1])
        while True: time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]): time.sleep(0.001)
{then}"
    );
    program("python3", &["-c", &script, pids.to_str().unwrap()])
}

const STAYS: &str = "while True: time.sleep(1000)";

/// The processes that the file names, when it is there.
async fn pids_in(path: &Path) -> Vec<i32> {
    let began = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text.split(' ').map(|pid| pid.parse().unwrap()).collect();
        }
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(PAUSE).await;
    }
}

fn assert_dead(pids: &[i32]) {
    assert_eq!(pids.len(), 2);
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{pids:?}");
}

#[tokio::test]
async fn what_takes_too_long_is_ended_with_all_that_it_started() {
    let then = format!("print('half', flush=True)\n{STAYS}");
    // A machine that has much to do may not get it as far as that in the first of these.
    for limit_seconds in [1, 4, 16, 64] {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let mut spec = with_daemon(&pids, &then);
        spec.time_limit = Duration::from_secs(limit_seconds);
        let ran = ran(&spec, OutputForm::Text).await;
        assert_eq!(ran.ending, ProcessExit::TimedOut);
        assert!(ran.wall_time >= spec.time_limit);
        if ran.findings.result.as_deref() == Some("half") {
            assert_dead(&pids_in(&pids).await);
            return;
        }
    }
    panic!("it never got as far as that");
}

#[tokio::test]
async fn what_it_leaves_behind_goes_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    let spec = with_daemon(&pids, "print('done', flush=True)");
    assert_eq!(result_of(&spec).await, "done");
    assert_dead(&pids_in(&pids).await);
}

#[tokio::test]
async fn a_stopped_run_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let spec = with_daemon(&path, STAYS);
    let stop = CancellationToken::new();
    let children = children();
    let form = rules(OutputForm::Text);
    let running = run(&children, &spec, label(), form, drop, stop.clone());
    let stopping = async {
        let pids = pids_in(&path).await;
        stop.cancel();
        pids
    };
    let (ran, pids) = tokio::join!(running, stopping);
    assert_eq!(ran.unwrap().ending, ProcessExit::Stopped);
    assert_dead(&pids);
    assert_eq!(children.running(), 0);
}

#[tokio::test]
async fn a_run_that_is_given_up_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let spec = with_daemon(&path, STAYS);
    let children = children();
    let stop = CancellationToken::new();
    let form = rules(OutputForm::Text);
    let running = run(&children, &spec, label(), form, drop, stop);
    let pids = tokio::select! {
        pids = pids_in(&path) => pids,
        ran = running => panic!("{ran:?}"),
    };
    tokio::time::timeout(PATIENCE, children.all_gone())
        .await
        .unwrap();
    until_dead(&pids).await;
}

#[tokio::test]
async fn a_flood_ends_it() {
    let mut spec = shell("while :; do echo 0123456789; done");
    spec.output_bytes_max = 1000;
    let flood = ran(&spec, OutputForm::Text).await;
    assert_eq!(flood.ending, ProcessExit::OutputTooLong);
    assert_eq!(flood.findings.result.unwrap().len(), 1000 / 11 * 11 - 1);

    let mut spec = shell("echo ok; while :; do printf 0123456789; done");
    spec.child.limits.message_bytes_max = 1000;
    let line = ran(&spec, OutputForm::Text).await;
    assert_eq!(line.ending, ProcessExit::OutputTooLong);
    assert_eq!(line.findings.result.as_deref(), Some("ok"));
}

#[tokio::test]
async fn what_fits_exactly_does_not_end_it() {
    let mut spec = shell("echo 0123456789; echo 012345678");
    spec.output_bytes_max = 21;
    spec.child.limits.message_bytes_max = 10;
    assert_eq!(result_of(&spec).await, "0123456789\n012345678");
    spec.output_bytes_max = 20;
    let ran = ran(&spec, OutputForm::Text).await;
    assert_eq!(ran.ending, ProcessExit::OutputTooLong);
}

/// The parent of a process.
fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_run_whose_supervisor_is_killed_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pids");
    let spec = with_daemon(&path, STAYS);
    let killing = async {
        let pids = pids_in(&path).await;
        kill(parent_of(pids[0]), rustix::process::Signal::KILL);
        pids
    };
    let (ran, pids) = tokio::join!(ran(&spec, OutputForm::Text), killing);
    assert!(matches!(ran.ending, ProcessExit::Broken(_)), "{ran:?}");
    assert_dead(&pids);
}
