//! Listing directories.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use mooring_sandbox::tree::{
    BrowseOptions, FileKind, Hidden, Listing, TreeAccess, TreeError, browse,
};

use crate::support::{Session, at, make_device, make_fifo, promptly};

fn list(session: &Session, path: &str, entries_max: usize) -> Listing {
    browse(
        &session.view(),
        &at(path),
        &BrowseOptions {
            hidden: Hidden::LeftOut,
            entries_max,
        },
        &TreeAccess::WHOLE,
    )
    .unwrap()
}

fn names(listing: &Listing) -> Vec<&str> {
    listing
        .entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect()
}

#[test]
fn the_root_holds_the_four_mounts() {
    let session = Session::new();
    let root = list(&session, "/", 200);
    assert_eq!(names(&root), ["results", "scratch", "skills", "tools"]);
    assert!(
        root.entries
            .iter()
            .all(|entry| entry.kind == FileKind::Directory)
    );
    assert!(!root.is_truncated);
    let short = list(&session, "/", 3);
    assert_eq!(
        (names(&short), short.is_truncated),
        (vec!["results", "scratch", "skills"], true)
    );
}

#[test]
fn truncated_is_said_exactly_where_there_is_more() {
    let session = Session::new();
    for name in ["e", "b", "d", "a", "c", ".hidden"] {
        fs::write(session.scratch(name), name).unwrap();
    }
    for (entries_max, expected, is_truncated) in [
        (4, &["a", "b", "c", "d"][..], true),
        (5, &["a", "b", "c", "d", "e"], false),
        (6, &["a", "b", "c", "d", "e"], false),
        (0, &["a"], true),
    ] {
        let listing = list(&session, "/scratch", entries_max);
        assert_eq!(
            (names(&listing), listing.is_truncated),
            (expected.to_vec(), is_truncated),
            "{entries_max}"
        );
    }
    let options = BrowseOptions {
        hidden: Hidden::Listed,
        entries_max: 1,
    };
    let listing = browse(
        &session.view(),
        &at("/scratch"),
        &options,
        &TreeAccess::WHOLE,
    )
    .unwrap();
    assert_eq!(
        (names(&listing), listing.is_truncated),
        (vec![".hidden"], true)
    );
}

#[test]
fn entries_tell_kind_length_and_time_and_nothing_is_followed() {
    let session = Session::new();
    fs::write(session.scratch("file"), b"12345").unwrap();
    fs::create_dir(session.scratch("directory")).unwrap();
    symlink("/etc", session.scratch("link")).unwrap();
    make_fifo(&session.scratch("fifo"));
    make_device(&session.scratch("device"), 0, 0);
    fs::write(
        session
            .scratch("")
            .join(OsStr::from_bytes(b"odd\n\xff\x1b[2J")),
        b"",
    )
    .unwrap();
    let listing = list(&session, "/scratch", 200);
    let seen: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind, entry.size_bytes))
        .collect();
    assert_eq!(
        seen,
        [
            ("device", FileKind::Other, 0),
            ("directory", FileKind::Directory, 0),
            ("fifo", FileKind::Other, 0),
            ("file", FileKind::File, 5),
            ("link", FileKind::Other, 0),
            ("odd\\u{a}\\xff\\u{1b}[2J", FileKind::File, 0),
        ]
    );
    assert!(
        listing
            .entries
            .iter()
            .all(|entry| entry.modified_at_ms > 1_600_000_000_000)
    );
}

#[test]
fn only_directories_are_listed() {
    let session = Session::new();
    fs::write(session.scratch("file"), b"").unwrap();
    symlink("/etc", session.scratch("link")).unwrap();
    make_fifo(&session.scratch("fifo"));
    let view = session.view();
    promptly(move || {
        let refused = |path: &str| {
            browse(
                &view,
                &at(path),
                &BrowseOptions::default(),
                &TreeAccess::WHOLE,
            )
            .unwrap_err()
        };
        assert!(matches!(
            refused("/scratch/file"),
            TreeError::NotADirectory(_)
        ));
        assert!(matches!(refused("/scratch/no"), TreeError::NotFound(_)));
        assert!(matches!(refused("/scratch/link"), TreeError::Special(_)));
        assert!(matches!(
            refused("/scratch/link/ssl"),
            TreeError::Special(_)
        ));
        assert!(matches!(refused("/scratch/fifo"), TreeError::Special(_)));
    });
}

#[test]
fn the_first_names_of_very_many_are_found() {
    let session = Session::new();
    for number in (0..20_000).rev() {
        fs::write(session.scratch(&format!("{number:05}")), b"").unwrap();
    }
    let listing = list(&session, "/scratch", 5000);
    assert_eq!(listing.entries.len(), BrowseOptions::ENTRIES_MAX);
    assert!(listing.is_truncated);
    assert!(
        listing
            .entries
            .iter()
            .enumerate()
            .all(|(index, entry)| entry.name == format!("{index:05}"))
    );
}
