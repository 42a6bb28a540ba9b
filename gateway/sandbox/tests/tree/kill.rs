//! Death at any moment: a commit in a process of its own is killed after each change that it makes to the disk.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use mooring_sandbox::tree::{
    Checkpoint, RecoveryOutcome, SessionDirectory, commit, commit_with, recover,
};

use crate::support::{Session, changes, child, directory, make_device, roomy, set_attribute};

const VARIABLE: &str = "MOORING_TEST_KILL";

/// Kills its own process after a number of changes.
struct Death {
    changes_left: u64,
}

impl Checkpoint for Death {
    fn reached(&mut self) {
        if self.changes_left == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        self.changes_left -= 1;
    }
}

/// The process that dies: does nothing where it is not told to.
#[test]
fn commit_in_a_child() {
    let Ok(order) = std::env::var(VARIABLE) else {
        return;
    };
    let (changes_left, base) = order.split_once(':').unwrap();
    let base = Path::new(base);
    let session = SessionDirectory::open(directory(&base.join("root"))).unwrap();
    let mut death = Death {
        changes_left: changes_left.parse().unwrap(),
    };
    let upper = changes(&base.join("upper"));
    if base.join("recover-only").exists() {
        // A second death, while the first one is being recovered from.
        commit_with(
            &session,
            &changes(&base.join("nothing")),
            &roomy(),
            None,
            &mut death,
        )
        .unwrap();
    } else {
        commit_with(&session, &upper, &roomy(), Some(5), &mut death).unwrap();
    }
}

/// A session with a layer over it that changes it in every way.
fn prepared() -> Session {
    let session = Session::new();
    for path in ["kept/deleted", "kept/replaced", "gone", "was-directory"] {
        fs::create_dir_all(session.scratch(path)).unwrap();
        fs::write(session.scratch(path).join("old"), b"old").unwrap();
    }
    fs::write(session.scratch("was-file"), b"old").unwrap();
    fs::write(session.scratch("kept/changed"), b"old").unwrap();
    fs::write(session.path("root/results/untouched"), b"same").unwrap();
    for path in ["kept/replaced", "was-file/inner", "kept/new/er"] {
        fs::create_dir_all(session.upper(path)).unwrap();
        fs::write(session.upper(path).join("new"), b"new").unwrap();
    }
    set_attribute(&session.upper("kept/replaced"), "user.overlay.opaque", b"y");
    fs::write(session.upper("kept/changed"), b"new").unwrap();
    fs::write(session.upper("was-directory"), b"new").unwrap();
    make_device(&session.upper("kept/deleted"), 0, 0);
    make_device(&session.upper("gone"), 0, 0);
    fs::write(session.path("upper/results/result"), b"new").unwrap();
    for name in ["scratch", "results"] {
        fs::create_dir_all(session.path("nothing").join(name)).unwrap();
    }
    session
}

/// Runs the child; says whether it was killed.
fn dies(session: &Session, changes_left: u64) -> bool {
    let order = format!("{changes_left}:{}", session.path("").display());
    let output = child("kill::commit_in_a_child", VARIABLE, &order)
        .output()
        .unwrap();
    match output.status.signal() {
        Some(signal) => {
            assert_eq!(signal, 9);
            true
        }
        None => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stdout)
            );
            false
        }
    }
}

#[test]
fn a_kill_leaves_the_old_tree_or_the_new_one() {
    let before = prepared().picture();
    let whole = prepared();
    commit(&whole.directory, &whole.changes(), &roomy(), Some(5)).unwrap();
    let after = whole.picture();
    assert_ne!(before, after);
    let (mut dropped, mut completed, mut nothing) = (0, 0, 0);
    for changes_left in 0.. {
        let session = prepared();
        if !dies(&session, changes_left) {
            assert_eq!(session.picture(), after);
            break;
        }
        let (recovered, picture) = (recover(&session.directory).unwrap(), session.picture());
        let is_new = picture == after;
        assert!(
            is_new || picture == before,
            "killed after {changes_left}: {picture:#?}"
        );
        match recovered {
            RecoveryOutcome::Completed => {
                assert!(is_new);
                completed += 1;
            }
            RecoveryOutcome::Dropped => dropped += 1,
            RecoveryOutcome::Nothing => nothing += 1,
        }
        let expected: &[&str] = if is_new {
            &[".mooring/staging/", ".mooring/turn.json"]
        } else {
            &[".mooring/staging/"]
        };
        assert_eq!(
            session.host_files(),
            expected,
            "killed after {changes_left}"
        );
        assert_eq!(
            recover(&session.directory).unwrap(),
            RecoveryOutcome::Nothing
        );
        // Whoever comes next can go on.
        commit(&session.directory, &session.changes(), &roomy(), Some(6)).unwrap();
        assert_eq!(session.picture(), after);
    }
    assert!(
        dropped >= 10 && completed >= 10 && nothing >= 1,
        "{dropped} {completed} {nothing}"
    );
}

#[test]
fn a_kill_during_recovery_leaves_it_to_the_next_one() {
    let whole = prepared();
    commit(&whole.directory, &whole.changes(), &roomy(), Some(5)).unwrap();
    let after = whole.picture();
    let mut deaths = 0;
    // After this many changes the journal stands and no step is done: the child says so by what it leaves.
    for first in 0.. {
        let session = prepared();
        assert!(dies(&session, first), "the journal never stood");
        if !session
            .host_files()
            .contains(&".mooring/journal.json".to_owned())
        {
            continue;
        }
        fs::write(session.path("recover-only"), b"").unwrap();
        for second in 0.. {
            // Each death does one more change than the one before, on what that left.
            if !dies(&session, second) {
                break;
            }
            deaths += 1;
        }
        recover(&session.directory).unwrap();
        assert_eq!(session.picture(), after);
        break;
    }
    assert!(deaths >= 3, "{deaths}");
}
