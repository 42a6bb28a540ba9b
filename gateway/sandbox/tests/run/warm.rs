//! Helpers that were started in advance: what they have while they wait, and that a run never fails because of one.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use mooring_sandbox::{HelperStart, Options, Outcome, RunEnd, Sandbox, StopHandle};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    self, Ground, Turn, has_group, limits, options, python, sandbox, text, wait_until,
};

/// A sandbox with this many, all of them waiting.
fn warm(count: usize) -> Sandbox {
    let sandbox = Sandbox::probe(Options {
        warm_helpers: count,
        ..options()
    })
    .expect("the walls of the tier stand on this machine");
    until_waiting(&sandbox, count);
    sandbox
}

fn until_waiting(sandbox: &Sandbox, count: usize) {
    wait_until("waiting helpers", || {
        sandbox.waiting_processes().len() == count
    });
}

fn run(sandbox: &Sandbox, ground: &Ground, source: &str) -> Outcome {
    let job = ground.job(python(source), limits());
    let stop = StopHandle::new().unwrap();
    let outcome = sandbox.run(job, &stop).expect("the run was made");
    let said = text(&outcome.stderr.bytes);
    assert_eq!(outcome.ended, RunEnd::Exited(0), "{said}");
    outcome
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn each_helper_serves_one_run() {
    let _turn = Turn::take();
    let sandbox = warm(2);
    let (ground, mut used) = (Ground::new(), Vec::new());
    for number in 0..5 {
        until_waiting(&sandbox, 2);
        used.push(sandbox.waiting_processes()[0]);
        let outcome = run(&sandbox, &ground, &format!("print({number})"));
        assert_eq!(outcome.start, HelperStart::Warm);
        assert_eq!(text(&outcome.stdout.bytes), format!("{number}\n"));
        wait_until("the end of a helper whose run is over", || {
            !used.iter().flatten().any(|pid| is_there(*pid))
        });
    }
}

#[test]
fn dismissed_helpers_are_gone_with_their_groups_and_runs_go_on() {
    let _turn = Turn::take();
    let sandbox = warm(2);
    let waiting = sandbox.waiting_processes();
    sandbox.dismiss_waiting();
    assert!(!waiting.iter().flatten().any(|pid| is_there(*pid)));
    let own = format!("-{}-", std::process::id());
    assert!(support::groups(&own).is_empty());
    let outcome = run(&sandbox, &Ground::new(), "print('fine')");
    assert_eq!(outcome.start, HelperStart::Cold);
    assert!(sandbox.waiting_processes().is_empty());
}

#[test]
fn more_runs_than_helpers_begin_their_own() {
    let _turn = Turn::take();
    let (sandbox, starts) = (warm(1), std::sync::Barrier::new(4));
    thread::scope(|scope| {
        for number in 0..4 {
            let (sandbox, starts) = (&sandbox, &starts);
            scope.spawn(move || {
                let ground = Ground::new();
                starts.wait();
                let outcome = run(sandbox, &ground, &format!("print({number})"));
                assert_eq!(text(&outcome.stdout.bytes), format!("{number}\n"));
            });
        }
    });
}

#[test]
fn a_helper_that_died_while_it_waited_is_passed_over() {
    let _turn = Turn::take();
    let (sandbox, ground) = (warm(1), Ground::new());
    let mut gone = Vec::new();
    for which in 0..2 {
        until_waiting(&sandbox, 1);
        let dead = sandbox.waiting_processes()[0];
        signal(dead[which], Signal::KILL);
        let outcome = run(&sandbox, &ground, "print('fine')");
        // The kernel takes a moment: one that is not quite dead comes to nothing before its program is started.
        assert_eq!(text(&outcome.stdout.bytes), "fine\n");
        gone.extend(dead);
    }
    drop(sandbox);
    until_reaped(&gone);
}

/// Waits for the end of these. What a dead helper leaves comes to this process, which reaps it when no other child of
/// it is waited for.
fn until_reaped(pids: &[i32]) {
    wait_until("the end of the dead", || {
        while matches!(
            rustix::process::wait(rustix::process::WaitOptions::NOHANG),
            Ok(Some(_))
        ) {}
        !pids.iter().any(|pid| is_there(*pid))
    });
}

#[test]
fn a_helper_that_does_not_answer_is_given_up() {
    let _turn = Turn::take();
    let (sandbox, ground) = (warm(1), Ground::new());
    let stuck = sandbox.waiting_processes()[0];
    signal(stuck[0], Signal::STOP);
    let outcome = run(&sandbox, &ground, "print('fine')");
    assert_eq!(outcome.start, HelperStart::Cold);
    assert_eq!(text(&outcome.stdout.bytes), "fine\n");
    drop(sandbox);
    until_reaped(&stuck);
}

fn is_there(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_waiting_helper_has_nothing_of_its_host_or_of_a_session() {
    let _turn = Turn::take();
    let (sandbox, ground) = (warm(2), Ground::new());
    run(&sandbox, &ground, "open('/scratch/new', 'w').close()");
    until_waiting(&sandbox, 2);
    let session = ground.path("scratch").parent().unwrap().to_owned();
    let waiting = sandbox.waiting_processes();
    for pid in waiting.into_iter().flatten() {
        let directory = format!("/proc/{pid}");
        let of = |name: &str| fs::read(format!("{directory}/{name}")).unwrap_or_default();
        // A terminal sends its signals to the whole group of the host, which first finishes its runs.
        let group = rustix::process::getpgid(Pid::from_raw(pid)).unwrap();
        assert_ne!(group, rustix::process::getpgrp());
        assert_eq!(text(&of("cmdline")), "mooring-sandbox\0");
        for name in ["cmdline", "mountinfo", "maps"] {
            assert!(
                !text(&of(name)).contains(session.to_str().unwrap()),
                "{name}"
            );
        }
        if !support::is_root() {
            // It hides its memory, and with it these, from everybody but root.
            assert!(fs::read_dir(format!("{directory}/fd")).is_err());
            continue;
        }
        assert_eq!(text(&of("environ")), "");
        assert_eq!(
            fs::read_link(format!("{directory}/cwd")).unwrap(),
            Path::new("/")
        );
        let mut kinds: Vec<String> = fs::read_dir(format!("{directory}/fd"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let kind = fs::metadata(&path).unwrap().file_type();
                match fs::read_link(&path).unwrap() {
                    _ if kind.is_fifo() => "pipe".to_owned(),
                    _ if kind.is_socket() => "socket".to_owned(),
                    other => other.display().to_string(),
                }
            })
            .collect();
        kinds.sort();
        // The input, the root to be, the settings of the kernel in process 1; both streams; the channels.
        kinds.retain(|kind| kind != "/proc/sys/kernel");
        let expected = ["/", "/dev/null", "pipe", "pipe", "socket", "socket"];
        assert_eq!(kinds, expected);
    }
}

/// Set in the process that is to be killed.
const VICTIM_VARIABLE: &str = "MOORING_TEST_WARM_VICTIM";

#[test]
fn the_victim() {
    if std::env::var_os(VICTIM_VARIABLE).is_some() {
        let _sandbox = warm(2);
        thread::sleep(Duration::from_secs(600));
    }
}

#[test]
fn a_host_that_is_killed_takes_its_waiting_helpers_with_it() {
    let _turn = Turn::take();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "warm::the_victim"])
        .env(VICTIM_VARIABLE, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = host.id() as i32;
    let helper = options().launcher.file_name().unwrap().to_owned();
    let mut waiting = std::collections::BTreeSet::new();
    // Two helpers with their first processes, and nothing of the self-test any more.
    wait_until("waiting helpers", || {
        let names = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        waiting = support::descendants(pid);
        waiting.len() == 4
            && waiting
                .iter()
                .all(|pid| names(pid).trim_end() == helper.to_str().unwrap())
            && support::groups(&format!("-{pid}-")).is_empty() != has_group()
    });
    host.kill().unwrap();
    host.wait().unwrap();
    until_reaped(&Vec::from_iter(waiting));
    drop(Sandbox::probe(options()).expect("the next host"));
    let left = support::groups(&format!("-{pid}-"));
    assert!(
        left.is_empty(),
        "the next probe removes the groups of the dead: {left:?}"
    );
}

#[test]
fn the_sandbox_of_the_other_tests_has_none() {
    let _turn = Turn::take();
    let outcome = run(sandbox(), &Ground::new(), "print('fine')");
    assert_eq!(outcome.start, HelperStart::Cold);
    assert!(sandbox().waiting_processes().is_empty());
}
