//! What a commit keeps, deletes and counts; turns; limits.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use mooring_sandbox::Limits;
use mooring_sandbox::tree::{
    CommitError, CommitReport, RecoveryOutcome, TreeUsage, commit, recover,
};

use crate::support::{Session, make_device, open_files, promptly, roomy, set_attribute};

fn keep(session: &Session) -> CommitReport {
    commit(&session.directory, &session.changes(), &roomy(), None).unwrap()
}

#[test]
fn files_and_directories_are_made_written_over_and_deleted() {
    let session = Session::new();
    fs::create_dir_all(session.scratch("kept/old")).unwrap();
    fs::write(session.scratch("kept/same"), b"same").unwrap();
    fs::write(session.scratch("kept/changed"), b"before").unwrap();
    fs::write(session.scratch("kept/old/gone"), b"gone").unwrap();
    fs::create_dir_all(session.upper("kept")).unwrap();
    fs::create_dir_all(session.upper("new/er")).unwrap();
    fs::write(session.upper("kept/changed"), b"after").unwrap();
    fs::write(session.upper("new/er/file"), b"12").unwrap();
    make_device(&session.upper("kept/old"), 0, 0);
    make_device(&session.upper("never-was"), 0, 0);
    fs::write(session.path("upper/results/r"), b"r").unwrap();
    let committed = keep(&session);
    let expected = CommitReport {
        files: 3,
        directories: 2,
        deleted: 1,
        bytes: 8,
        usage: TreeUsage {
            bytes: 12,
            inodes: 7,
        },
        ..CommitReport::default()
    };
    assert_eq!(committed, expected);
    let picture = session.picture();
    let paths: Vec<&str> = picture.keys().map(String::as_str).collect();
    let expected = [
        "results/r",
        "scratch/kept/",
        "scratch/kept/changed",
        "scratch/kept/same",
        "scratch/new/",
    ];
    assert_eq!(
        paths,
        [&expected[..], &["scratch/new/er/", "scratch/new/er/file"]].concat()
    );
    assert_eq!(picture["scratch/kept/changed"].0, b"after");
    assert_eq!(session.host_files(), [".mooring/staging/"]);
    assert_eq!(
        recover(&session.directory).unwrap(),
        RecoveryOutcome::Nothing
    );
}

#[test]
fn an_opaque_directory_replaces_and_another_merges() {
    let session = Session::new();
    for name in ["merged", "opaque", "forged"] {
        fs::create_dir(session.scratch(name)).unwrap();
        fs::write(session.scratch(name).join("old"), b"old").unwrap();
        fs::create_dir(session.upper(name)).unwrap();
        fs::write(session.upper(name).join("new"), b"new").unwrap();
    }
    set_attribute(&session.upper("opaque"), "user.overlay.opaque", b"y");
    set_attribute(&session.upper("forged"), "user.overlay.opaque", b"yes");
    keep(&session);
    let picture = session.picture();
    assert!(
        picture.contains_key("scratch/merged/old") && picture.contains_key("scratch/merged/new")
    );
    assert!(
        !picture.contains_key("scratch/opaque/old") && picture.contains_key("scratch/opaque/new")
    );
    assert!(
        picture.contains_key("scratch/forged/old") && picture.contains_key("scratch/forged/new")
    );
}

#[test]
fn a_file_takes_the_place_of_a_directory_and_the_other_way_round() {
    let session = Session::new();
    fs::create_dir_all(session.scratch("was-directory/deep")).unwrap();
    fs::write(session.scratch("was-file"), b"old").unwrap();
    fs::write(session.upper("was-directory"), b"now").unwrap();
    fs::create_dir_all(session.upper("was-file/inner")).unwrap();
    assert_eq!(
        keep(&session).usage,
        TreeUsage {
            bytes: 3,
            inodes: 3
        }
    );
    let paths: Vec<_> = session.picture().into_keys().collect();
    assert_eq!(
        paths,
        [
            "scratch/was-directory",
            "scratch/was-file/",
            "scratch/was-file/inner/"
        ]
    );
}

#[test]
fn of_a_mode_only_the_owners_execute_bit_is_kept_and_of_times_the_last_change() {
    let session = Session::new();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (name, mode) in [
        ("plain", 0o600),
        ("setuid", 0o6755),
        ("open", 0o666),
        ("closed", 0),
        ("run", 0o100),
    ] {
        fs::write(session.upper(name), name).unwrap();
        fs::File::options()
            .write(true)
            .open(session.upper(name))
            .unwrap()
            .set_modified(then)
            .unwrap();
        set_attribute(&session.upper(name), "user.note", b"dropped");
        fs::set_permissions(session.upper(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(session.upper("sticky")).unwrap();
    fs::write(session.upper("sticky/inner"), b"").unwrap();
    fs::set_permissions(session.upper("sticky"), fs::Permissions::from_mode(0o7000)).unwrap();
    keep(&session);
    let modes: Vec<_> = session
        .picture()
        .into_iter()
        .map(|(path, (_, mode))| (path, mode))
        .collect();
    let expected = [
        ("scratch/closed", 0o644),
        ("scratch/open", 0o644),
        ("scratch/plain", 0o644),
        ("scratch/run", 0o755),
        ("scratch/setuid", 0o755),
        ("scratch/sticky/", 0o755),
        ("scratch/sticky/inner", 0o644),
    ];
    assert_eq!(modes, expected.map(|(path, mode)| (path.to_owned(), mode)));
    assert_eq!(
        fs::metadata(session.scratch("plain"))
            .unwrap()
            .modified()
            .unwrap(),
        then
    );
    let mut attributes = [0_u8; 256];
    assert_eq!(
        rustix::fs::listxattr(session.scratch("plain"), &mut attributes[..]).unwrap(),
        0
    );
}

#[test]
fn holes_stay_holes_and_what_is_around_them_is_kept() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    let session = Session::new();
    let file = fs::File::create(session.upper("sparse")).unwrap();
    let length = 8 << 20;
    file.set_len(length).unwrap();
    for (offset, bytes) in [
        (0, &b"begin"[..]),
        (3 << 20, b"middle"),
        (5 << 20, &[7; 300_000]),
    ] {
        file.write_all_at(bytes, offset).unwrap();
    }
    keep(&session);
    assert_eq!(
        fs::read(session.scratch("sparse")).unwrap(),
        fs::read(session.upper("sparse")).unwrap()
    );
    let blocks = fs::metadata(session.scratch("sparse")).unwrap().blocks();
    assert!(blocks * 512 < length / 4, "{blocks} blocks");
}

#[test]
fn over_the_limits_nothing_changes() {
    let session = Session::new();
    fs::write(session.scratch("old"), [0; 60]).unwrap();
    fs::write(session.upper("a"), [1; 30]).unwrap();
    fs::write(session.upper("b"), [1; 30]).unwrap();
    let before = session.picture();
    let over =
        |limits: Limits| match commit(&session.directory, &session.changes(), &limits, Some(1)) {
            Err(CommitError::OverLimit {
                limit,
                needed,
                allowed,
            }) => (limit, needed, allowed),
            other => panic!("{other:?}"),
        };
    assert_eq!(
        over(Limits {
            disk_bytes: 119,
            ..roomy()
        }),
        ("disk_bytes", 120, 119)
    );
    assert_eq!(
        over(Limits {
            inodes: 2,
            ..roomy()
        }),
        ("inodes", 3, 2)
    );
    assert_eq!(session.picture(), before);
    assert_eq!(session.host_files(), [".mooring/staging/"]);
    // What is deleted makes room.
    make_device(&session.upper("old"), 0, 0);
    let limits = Limits {
        disk_bytes: 60,
        inodes: 2,
        ..roomy()
    };
    let committed = commit(&session.directory, &session.changes(), &limits, Some(1)).unwrap();
    assert_eq!(
        committed.usage,
        TreeUsage {
            bytes: 60,
            inodes: 2
        }
    );
}

#[test]
fn under_lowered_limits_a_commit_may_still_delete() {
    let session = Session::new();
    for name in ["a", "b", "c"] {
        fs::write(session.scratch(name), [0; 10]).unwrap();
    }
    make_device(&session.upper("a"), 0, 0);
    let lowered = Limits {
        disk_bytes: 5,
        inodes: 1,
        ..roomy()
    };
    let committed = commit(&session.directory, &session.changes(), &lowered, None).unwrap();
    assert_eq!(
        committed.usage,
        TreeUsage {
            bytes: 20,
            inodes: 2
        }
    );
}

#[test]
fn a_turn_that_was_overtaken_changes_nothing() {
    let session = Session::new();
    fs::write(session.upper("a"), b"seventh").unwrap();
    commit(&session.directory, &session.changes(), &roomy(), Some(7)).unwrap();
    fs::write(session.upper("a"), b"sixth").unwrap();
    let error = commit(&session.directory, &session.changes(), &roomy(), Some(6)).unwrap_err();
    assert!(matches!(error, CommitError::Overtaken { turn: 6, last: 7 }));
    assert_eq!(session.picture()["scratch/a"].0, b"seventh");
    commit(&session.directory, &session.changes(), &roomy(), Some(7))
        .expect("the same turn may commit again");
    commit(&session.directory, &session.changes(), &roomy(), None)
        .expect("without a turn the lock alone decides");
    let nothing = Session::new();
    commit(&nothing.directory, &nothing.changes(), &roomy(), Some(3)).unwrap();
    let error = commit(&nothing.directory, &nothing.changes(), &roomy(), Some(2)).unwrap_err();
    assert!(
        matches!(error, CommitError::Overtaken { .. }),
        "a run that changes nothing counts as well"
    );
    nothing.directory.forget_turn().unwrap();
    commit(&nothing.directory, &nothing.changes(), &roomy(), Some(1))
        .expect("another incarnation counts anew");
}

#[test]
fn what_the_death_of_the_machine_cut_off_keeps_nobody_out() {
    let session = Session::new();
    fs::write(session.upper("a"), b"first").unwrap();
    commit(&session.directory, &session.changes(), &roomy(), Some(7)).unwrap();
    let host = session.path("root/.mooring");
    for name in ["turn.json", "journal.json"] {
        fs::write(host.join(name), b"{\"version\":").unwrap();
    }
    recover(&session.directory).unwrap();
    assert!(!host.join("journal.json").exists());
    fs::write(session.upper("a"), b"second").unwrap();
    commit(&session.directory, &session.changes(), &roomy(), Some(1)).unwrap();
    assert_eq!(session.picture()["scratch/a"].0, b"second");
    let error = commit(&session.directory, &session.changes(), &roomy(), Some(0)).unwrap_err();
    assert!(matches!(error, CommitError::Overtaken { turn: 0, last: 1 }));
}

#[test]
fn no_file_stays_open() {
    let session = Session::new();
    for number in 0..50 {
        fs::create_dir_all(session.upper(&format!("{number}/a/b"))).unwrap();
        fs::write(session.upper(&format!("{number}/a/file")), b"x").unwrap();
    }
    let changes = session.changes();
    promptly(move || {
        // SAFETY: this thread is new, and nobody else uses its table of files afterwards.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }.unwrap();
        let before = open_files();
        commit(&session.directory, &changes, &roomy(), Some(1)).unwrap();
        recover(&session.directory).unwrap();
        assert_eq!(open_files(), before);
    });
}

/// A run that makes many files costs the host processor time, of which it may have as much as the run itself.
#[test]
fn a_commit_takes_no_more_processor_time_than_its_run() {
    let session = Session::new();
    for number in 0..2_000 {
        fs::write(session.upper(&format!("{number}")), b"x").unwrap();
    }
    let before = session.picture();
    let limits = Limits {
        cpu_time: Duration::from_millis(1),
        ..roomy()
    };
    let result = commit(&session.directory, &session.changes(), &limits, Some(1));
    let Err(CommitError::OverLimit { limit, allowed, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!((limit, allowed), ("cpu_time_ms", 1));
    assert_eq!(session.picture(), before);
    commit(&session.directory, &session.changes(), &roomy(), Some(1)).unwrap();
}
