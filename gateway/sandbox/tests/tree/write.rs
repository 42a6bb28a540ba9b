//! Writing single files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use mooring_sandbox::Limits;
use mooring_sandbox::tree::{TreeAccess, TreeError, TreeUsage, read, write};

use crate::support::{Session, at, make_fifo, promptly, roomy};

#[test]
fn a_file_and_its_directories_are_made_and_read_back() {
    let session = Session::new();
    let written = write(
        &session.directory,
        &at("/scratch/a/b/c.txt"),
        b"one",
        &roomy(),
    )
    .unwrap();
    assert_eq!(
        (written.size_bytes, written.usage),
        (
            3,
            TreeUsage {
                bytes: 3,
                inodes: 3
            }
        )
    );
    let written = write(
        &session.directory,
        &at("/scratch/a/b/c.txt"),
        b"three",
        &roomy(),
    )
    .unwrap();
    assert_eq!(
        written.usage,
        TreeUsage {
            bytes: 5,
            inodes: 3
        }
    );
    write(&session.directory, &at("/results/r"), b"", &roomy()).unwrap();
    let content = read(
        &session.view(),
        &at("/scratch/a/b/c.txt"),
        100,
        &TreeAccess::WHOLE,
    )
    .unwrap();
    assert_eq!(
        (content.bytes, content.modified_at_ms),
        (b"three".to_vec(), written.modified_at_ms)
    );
    let modes: Vec<_> = session
        .picture()
        .into_iter()
        .map(|(path, (_, mode))| (path, mode))
        .collect();
    let expected = [
        ("results/r", 0o644),
        ("scratch/a/", 0o755),
        ("scratch/a/b/", 0o755),
        ("scratch/a/b/c.txt", 0o644),
    ];
    assert_eq!(modes, expected.map(|(path, mode)| (path.to_owned(), mode)));
    assert_eq!(session.host_files(), [".mooring/staging/"]);
}

#[test]
fn a_script_stays_executable_and_nothing_else_of_its_mode_stays() {
    let session = Session::new();
    fs::write(session.scratch("script"), b"#!").unwrap();
    fs::set_permissions(
        session.scratch("script"),
        fs::Permissions::from_mode(0o6711),
    )
    .unwrap();
    write(
        &session.directory,
        &at("/scratch/script"),
        b"#!/bin/sh",
        &roomy(),
    )
    .unwrap();
    assert_eq!(
        session.picture()["scratch/script"],
        (b"#!/bin/sh".to_vec(), 0o755)
    );
}

#[test]
fn only_the_agents_trees_can_be_written() {
    let session = Session::new();
    for path in ["/tools/x", "/skills/x", "/"] {
        let error = write(&session.directory, &at(path), b"", &roomy()).unwrap_err();
        assert!(matches!(error, TreeError::ReadOnly(_)), "{path}: {error:?}");
    }
    let error = write(&session.directory, &at("/scratch"), b"", &roomy()).unwrap_err();
    assert!(matches!(error, TreeError::IsADirectory(_)));
}

#[test]
fn what_stands_in_the_way_is_named_and_left() {
    let session = Session::new();
    fs::create_dir(session.scratch("directory")).unwrap();
    fs::write(session.scratch("file"), b"old").unwrap();
    fs::write(session.path("outside"), b"outside").unwrap();
    symlink(session.path("outside"), session.scratch("link")).unwrap();
    symlink(session.path(""), session.scratch("directory_link")).unwrap();
    make_fifo(&session.scratch("fifo"));
    let before = session.picture();
    let (root, outside) = (session.path("root"), session.path("outside"));
    let (_session, errors) = promptly(move || {
        let errors = [
            "directory",
            "file/x",
            "link",
            "directory_link/outside",
            "fifo",
            "fifo/x",
        ]
        .map(|name| {
            write(
                &session.directory,
                &at(&format!("/scratch/{name}")),
                b"new",
                &roomy(),
            )
            .unwrap_err()
        });
        (session, errors)
    });
    assert!(matches!(errors[0], TreeError::IsADirectory(_)));
    assert!(matches!(errors[1], TreeError::NotADirectory(_)));
    for index in [2, 4] {
        assert!(
            matches!(errors[index], TreeError::Special(_)),
            "{:?}",
            errors[index]
        );
    }
    // A link on the way is not a directory either.
    for index in [3, 5] {
        assert!(
            matches!(errors[index], TreeError::NotADirectory(_)),
            "{:?}",
            errors[index]
        );
    }
    assert_eq!(
        crate::support::picture(&root, &["scratch", "results"]),
        before
    );
    assert_eq!(fs::read(outside).unwrap(), b"outside");
}

#[test]
fn limits_hold_to_the_byte_and_to_the_file() {
    let session = Session::new();
    let limits = Limits {
        file_bytes: 10,
        disk_bytes: 15,
        inodes: 3,
        ..roomy()
    };
    let over =
        |path: &str, content: &[u8]| match write(&session.directory, &at(path), content, &limits) {
            Err(TreeError::OverLimit {
                limit,
                needed,
                allowed,
            }) => (limit, needed, allowed),
            other => panic!("{path}: {other:?}"),
        };
    assert_eq!(over("/scratch/a", &[0; 11]), ("file_bytes", 11, 10));
    write(&session.directory, &at("/scratch/a"), &[0; 10], &limits).unwrap();
    assert_eq!(over("/results/b", &[0; 6]), ("disk_bytes", 16, 15));
    assert_eq!(over("/results/1/2/b", &[0; 5]), ("inodes", 4, 3));
    assert_eq!(
        session.picture().len(),
        1,
        "a refused write makes no directory"
    );
    write(&session.directory, &at("/results/1/b"), &[0; 5], &limits).unwrap();
    write(&session.directory, &at("/scratch/a"), &[1; 10], &limits).unwrap();
    assert_eq!(over("/scratch/c", &[]), ("inodes", 4, 3));
    let lowered = Limits {
        disk_bytes: 1,
        inodes: 1,
        ..limits
    };
    write(&session.directory, &at("/scratch/a"), &[1; 2], &lowered)
        .expect("smaller is allowed under lowered limits");
}

#[test]
fn names_of_the_hosts_own_files_mean_nothing_in_a_tree() {
    let session = Session::new();
    for name in [
        ".mooring",
        "journal.json",
        "turn.json",
        "stamp.json",
        "staging",
        ".session.lock",
        "new-1",
        "old-1",
    ] {
        write(
            &session.directory,
            &at(&format!("/scratch/{name}")),
            b"x",
            &roomy(),
        )
        .unwrap();
    }
    write(&session.directory, &at("/scratch/Staging"), b"y", &roomy()).unwrap();
    assert_eq!(session.picture().len(), 9);
    assert_eq!(session.host_files(), [".mooring/staging/"]);
}
