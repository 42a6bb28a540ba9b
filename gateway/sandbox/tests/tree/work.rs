//! Working copies, as the tier without an overlay uses them.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;

use mooring_sandbox::tree::{CommitError, Mount, TreeUsage, commit, copy_trees};
use mooring_sandbox::{Changes, Limits};

use crate::support::{Session, changes, directory, make_device, roomy, set_attribute};

#[test]
fn a_working_copy_takes_the_place_of_the_trees() {
    let session = Session::new();
    fs::create_dir_all(session.scratch("a/b")).unwrap();
    fs::write(session.scratch("a/b/file"), b"old").unwrap();
    fs::write(session.scratch("deleted"), b"old").unwrap();
    fs::write(session.path("root/results/r"), b"result").unwrap();
    let before = session.picture();
    let held = session.directory.open_scratch().unwrap();
    fs::create_dir(session.path("work")).unwrap();
    let trees = [
        (Mount::Scratch, session.directory.scratch()),
        (Mount::Results, session.directory.results()),
    ];
    let work = directory(&session.path("work"));
    let [scratch, results] = copy_trees(trees, work.as_fd(), &roomy()).unwrap();
    let work = Changes {
        scratch,
        results,
        is_copy: true,
    };
    assert_eq!(
        crate::support::picture(&session.path("work"), &["scratch", "results"]),
        before
    );

    fs::write(session.path("work/scratch/a/b/file"), b"new").unwrap();
    fs::remove_file(session.path("work/scratch/deleted")).unwrap();
    fs::write(session.path("work/results/more"), b"more").unwrap();
    symlink("/etc", session.path("work/scratch/link")).unwrap();
    assert_eq!(
        session.picture(),
        before,
        "nothing is shared with the working copy"
    );
    let committed = commit(&session.directory, &work, &roomy(), Some(1)).unwrap();
    assert_eq!(
        (committed.refused_total, committed.usage),
        (
            1,
            TreeUsage {
                bytes: 13,
                inodes: 5
            }
        )
    );
    let picture = session.picture();
    let paths: Vec<&str> = picture.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            "results/more",
            "results/r",
            "scratch/a/",
            "scratch/a/b/",
            "scratch/a/b/file"
        ]
    );
    assert_eq!(picture["scratch/a/b/file"].0, b"new");
    assert!(
        rustix::fs::statat(&held, "a", rustix::fs::AtFlags::empty()).is_ok(),
        "open trees stay good"
    );
    assert_eq!(
        session.host_files(),
        [".mooring/staging/", ".mooring/turn.json"]
    );
    let error = commit(&session.directory, &work, &roomy(), Some(0)).unwrap_err();
    assert!(matches!(error, CommitError::Overtaken { .. }));
}

#[test]
fn marks_of_an_overlay_mean_nothing_in_a_working_copy() {
    let session = Session::new();
    fs::write(session.scratch("file"), b"old").unwrap();
    fs::create_dir_all(session.path("work/scratch/opaque")).unwrap();
    fs::create_dir_all(session.path("work/results")).unwrap();
    make_device(&session.path("work/scratch/file"), 0, 0);
    set_attribute(
        &session.path("work/scratch/opaque"),
        "user.overlay.opaque",
        b"y",
    );
    let committed = commit(&session.directory, &copies(&session), &roomy(), None).unwrap();
    assert_eq!(
        committed.refused[0].reason.to_string(),
        "a device; only files and directories are kept"
    );
    assert_eq!(
        session.picture().into_keys().collect::<Vec<_>>(),
        ["scratch/opaque/"]
    );
}

#[test]
fn over_the_limits_the_old_trees_stay() {
    let session = Session::new();
    fs::write(session.scratch("file"), [0; 100]).unwrap();
    let before = session.picture();
    fs::create_dir_all(session.path("work/scratch")).unwrap();
    fs::create_dir_all(session.path("work/results")).unwrap();
    for number in 0..5 {
        fs::write(
            session.path("work/scratch").join(number.to_string()),
            [0; 100],
        )
        .unwrap();
    }
    let limits = Limits {
        disk_bytes: 499,
        ..roomy()
    };
    let error = commit(&session.directory, &copies(&session), &limits, None).unwrap_err();
    assert!(matches!(
        error,
        CommitError::OverLimit {
            limit: "disk_bytes",
            needed: 500,
            allowed: 499
        }
    ));
    assert_eq!(session.picture(), before);
    assert_eq!(session.host_files(), [".mooring/staging/"]);
}

fn copies(session: &Session) -> Changes {
    Changes {
        is_copy: true,
        ..changes(&session.path("work"))
    }
}
