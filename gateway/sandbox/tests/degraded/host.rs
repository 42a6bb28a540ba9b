//! The host around runs: its death, and what many runs leave.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mooring_sandbox::{RunEnd, Sandbox, StopHandle};

use crate::ending::DEAF_TREE;
use crate::support::{
    self, Ground, Surroundings, Turn, limits, options, python, run_python, sandbox, text,
    wait_until,
};

/// Set in the process that is to be killed.
const VICTIM_VARIABLE: &str = "MOORING_TEST_VICTIM";

#[test]
fn the_victim() {
    if std::env::var_os(VICTIM_VARIABLE).is_some() {
        let _ = sandbox().run(
            Ground::new().job(python(DEAF_TREE), limits()),
            &StopHandle::new().unwrap(),
        );
    }
}

/// The directories of runs of this user.
fn directories() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    fs::read_dir(std::env::temp_dir().join(format!("mooring-runs-{user}")))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn of_process(pid: u32) -> usize {
    let begins = format!("{pid}-");
    directories()
        .iter()
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(&begins)
        })
        .count()
}

/// Which of them is killed.
#[derive(Debug, Clone, Copy)]
enum Killed {
    Host,
    /// The helper alone, and the host after it.
    Helper,
}

#[test]
fn a_host_or_a_helper_that_is_killed_takes_the_run_with_it() {
    let _turn = Turn::take();
    for killed in [Killed::Host, Killed::Helper] {
        let mut host = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "host::the_victim"])
            .env(VICTIM_VARIABLE, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = host.id() as i32;
        wait_until("the tree", || support::descendants(pid).len() >= 43);
        assert_eq!(of_process(host.id()), 1);
        if matches!(killed, Killed::Helper) {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let children: Vec<i32> = threads
                .flatten()
                .flat_map(|thread| {
                    fs::read_to_string(thread.path().join("children"))
                        .unwrap_or_default()
                        .split_whitespace()
                        .filter_map(|child| child.parse().ok())
                        .collect::<Vec<i32>>()
                })
                .collect();
            assert_eq!(children.len(), 1, "the helper: {text}");
            let helper = rustix::process::Pid::from_raw(children[0]).unwrap();
            rustix::process::kill_process(helper, rustix::process::Signal::KILL).unwrap();
        } else {
            host.kill().unwrap();
        }
        host.wait().unwrap();
        // Orphans come to this process, which has to reap them.
        let own = std::process::id() as i32;
        wait_until("the end of the tree", || {
            while matches!(
                rustix::process::wait(rustix::process::WaitOptions::NOHANG),
                Ok(Some(_))
            ) {}
            support::descendants(own).is_empty()
        });
        drop(Sandbox::probe(options()).expect("the next host"));
        assert_eq!(
            of_process(host.id()),
            0,
            "{killed:?}: the next probe removes it"
        );
    }
}

#[test]
fn many_runs_leave_nothing() {
    let _turn = Turn::take();
    let before = Surroundings::now();
    for number in 0..100 {
        let outcome = run_python("open('f', 'w').write('f')", limits());
        assert_eq!(
            outcome.ended,
            RunEnd::Exited(0),
            "run {number}: {}",
            text(&outcome.stderr.bytes)
        );
    }
    assert_eq!(Surroundings::now(), before);
    assert_eq!(of_process(std::process::id()), 0);
}

#[test]
fn runs_at_the_same_time_do_not_meet() {
    let _turn = Turn::take();
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let outcome = run_python(&format!("print({number})"), limits());
                assert_eq!(text(&outcome.stdout.bytes), format!("{number}\n"));
            });
        }
    });
}

#[test]
fn all_of_this_as_an_ordinary_user() {
    let _turn = Turn::take();
    if support::is_root() {
        support::again_as_an_ordinary_user(&["ordinary_user"]);
    }
}
