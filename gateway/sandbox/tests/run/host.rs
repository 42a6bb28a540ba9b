//! The host around runs: its probe, its threads, its death, and what a thousand runs leave.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use mooring_sandbox::{Layer, Options, Program, RunEnd, Sandbox, Stage, StopHandle};

use crate::support::{
    self, DEAF_TREE, Ground, Surroundings, Turn, WAIT, has_group, limits, options, python, run,
    run_python, sandbox, text, wait_until,
};

#[test]
fn a_helper_that_is_none_is_no_sandbox() {
    let _turn = Turn::take();
    let refused = |launcher: &str| {
        Sandbox::probe(Options {
            launcher: launcher.into(),
            ..options()
        })
        .expect_err("no helper")
        .to_string()
    };
    let missing = refused("/nonexistent");
    assert!(
        missing.contains("sandbox_unavailable: start the helper"),
        "{missing}"
    );
    let silent = refused("/bin/true");
    assert!(silent.contains("sandbox_unavailable"), "{silent}");
}

/// What a directory's parent is, is found without a path from the root: a mount left on top of it would be entered.
#[test]
fn the_way_up_ends_at_the_private_root() {
    let _turn = Turn::take();
    let source = "import os
names = ['../' + name for name in ('proc', 'sys', 'home', 'var', '.layers', 'scratch')]
print(os.path.samestat(os.stat('..'), os.stat('/')), [name for name in names if os.path.exists(name)])
";
    let outcome = run_python(source, limits());
    let said = text(&outcome.stdout.bytes);
    assert_eq!(
        said,
        "True ['../scratch']\n",
        "{}",
        text(&outcome.stderr.bytes)
    );
}

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

#[test]
fn a_host_that_is_killed_takes_its_run_with_it() {
    let _turn = Turn::take();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host::the_victim"])
        .env(VICTIM_VARIABLE, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = host.id() as i32;
    wait_until("the tree", || support::descendants(pid).len() >= 43);
    let had_groups = !support::groups(&format!("-{pid}-")).is_empty();
    assert_eq!(had_groups, has_group());
    host.kill().unwrap();
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
    assert!(
        support::groups(&format!("-{pid}-")).is_empty(),
        "the next probe removes the groups of the dead"
    );
}

#[test]
fn a_thousand_runs_leave_nothing() {
    let _turn = Turn::take();
    let stages = vec![Stage {
        tool: "cat".to_owned(),
        arguments: Vec::new(),
    }];
    let before = Surroundings::now();
    for number in 0..1000 {
        let outcome = run(
            Program::Pipeline {
                stages: stages.clone(),
            },
            limits(),
        );
        assert_eq!(
            outcome.ended,
            RunEnd::Exited(0),
            "run {number}: {}",
            text(&outcome.stderr.bytes)
        );
    }
    assert_eq!(Surroundings::now(), before);
}

#[test]
fn runs_at_the_same_time_do_not_meet() {
    let _turn = Turn::take();
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let outcome = run_python(&format!("print({number})"), limits());
                assert_eq!(text(&outcome.stdout.bytes), format!("{number}\n"));
            });
        }
    });
}

#[test]
fn the_probe_is_cheap_and_honest() {
    let _turn = Turn::take();
    let begun = Instant::now();
    let sandbox = Sandbox::probe(options()).expect("a sandbox");
    assert!(begun.elapsed() < WAIT);
    let layers = sandbox.layers();
    for layer in [
        Layer::Namespaces,
        Layer::Root,
        Layer::Overlay,
        Layer::Landlock,
        Layer::Seccomp,
        Layer::Rlimits,
    ] {
        assert!(layers.contains(&layer), "{layer:?}");
    }
    let limiting = [Layer::CgroupV2, Layer::CgroupV1, Layer::Watchdog];
    assert_eq!(
        layers
            .iter()
            .filter(|layer| limiting.contains(layer))
            .count(),
        1
    );
    assert!(sandbox.runtimes().python.path().is_some());
}

#[test]
fn all_of_this_as_an_ordinary_user() {
    let _turn = Turn::take();
    if support::is_root() {
        support::again_as_an_ordinary_user(&["ordinary_user"]);
    }
}
