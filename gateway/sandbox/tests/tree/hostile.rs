//! Layers as a run would make them that wants to reach the host.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use mooring_sandbox::Limits;
use mooring_sandbox::tree::{CommitError, CommitReport, commit};

use crate::support::{Session, is_root, make_device, make_fifo, promptly, roomy, set_attribute};

fn keep(session: Session, limits: Limits) -> (Session, Result<CommitReport, CommitError>) {
    promptly(move || {
        let committed = commit(&session.directory, &session.changes(), &limits, None);
        (session, committed)
    })
}

fn refusals(committed: &CommitReport) -> Vec<(String, String)> {
    let mut listed: Vec<_> = committed
        .refused
        .iter()
        .map(|refused| (refused.path.clone(), refused.reason.to_string()))
        .collect();
    listed.sort();
    listed
}

#[test]
fn links_pipes_sockets_and_devices_are_refused_and_never_opened() {
    let session = Session::new();
    fs::write(session.path("secret"), b"secret").unwrap();
    fs::write(session.scratch("hidden-by-link"), b"stays").unwrap();
    symlink(session.path("secret"), session.upper("hidden-by-link")).unwrap();
    symlink(session.path("secret"), session.upper("link")).unwrap();
    symlink("/proc/self/environ", session.upper("environ")).unwrap();
    symlink("/", session.upper("root")).unwrap();
    make_fifo(&session.upper("fifo"));
    let _listener = UnixListener::bind(session.upper("socket")).unwrap();
    let mut expected = vec![
        ("/scratch/environ", "symbolic link"),
        ("/scratch/fifo", "named pipe"),
        ("/scratch/hidden-by-link", "symbolic link"),
        ("/scratch/link", "symbolic link"),
        ("/scratch/root", "symbolic link"),
        ("/scratch/socket", "socket"),
    ];
    if is_root() {
        make_device(&session.upper("zero"), 1, 5);
        expected.push(("/scratch/zero", "device"));
    }
    fs::write(session.upper("good"), b"good").unwrap();
    assert_eq!(
        fs::read(session.upper("link")).unwrap(),
        b"secret",
        "the attack works without the defence"
    );
    let (session, committed) = keep(session, roomy());
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(path, kind)| {
            (
                path.to_owned(),
                format!("a {kind}; only files and directories are kept"),
            )
        })
        .collect();
    assert_eq!(refusals(&committed.unwrap()), expected);
    let picture = session.picture();
    assert_eq!(picture.len(), 2);
    assert_eq!(picture["scratch/hidden-by-link"].0, b"stays");
}

#[test]
fn a_sparse_terabyte_is_refused_and_the_rest_is_kept() {
    let session = Session::new();
    fs::File::create(session.upper("terabyte"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    fs::write(session.upper("good"), b"good").unwrap();
    let (session, committed) = keep(session, roomy());
    let reason = "1099511627776 bytes, over the limit file_bytes".to_owned();
    assert_eq!(
        refusals(&committed.unwrap()),
        [("/scratch/terabyte".to_owned(), reason)]
    );
    assert_eq!(session.picture().len(), 1);
}

#[test]
fn many_names_of_one_file_become_files_of_their_own_that_count() {
    let session = Session::new();
    fs::write(session.upper("0"), [7; 1000]).unwrap();
    for number in 1..20 {
        fs::hard_link(session.upper("0"), session.upper(&number.to_string())).unwrap();
    }
    let (session, refused) = keep(
        session,
        Limits {
            disk_bytes: 19_999,
            ..roomy()
        },
    );
    assert!(matches!(
        refused,
        Err(CommitError::OverLimit {
            limit: "disk_bytes",
            needed: 20_000,
            ..
        })
    ));
    assert!(session.picture().is_empty());
    let (session, committed) = keep(
        session,
        Limits {
            disk_bytes: 20_000,
            ..roomy()
        },
    );
    assert_eq!(committed.unwrap().bytes, 20_000);
    // The picture itself checks that each has one name.
    assert_eq!(session.picture().len(), 20);
}

#[test]
fn what_is_too_deep_is_refused_and_the_rest_is_kept() {
    let session = Session::new();
    let deepest = (1..=32).map(|_| "d").collect::<Vec<_>>().join("/");
    fs::create_dir_all(session.upper(&deepest).join("too/deep/by/far")).unwrap();
    fs::write(session.upper(&deepest).join("file"), b"").unwrap();
    let (session, committed) = keep(session, roomy());
    let committed = committed.unwrap();
    assert_eq!((committed.directories, committed.refused_total), (32, 2));
    assert!(
        refusals(&committed)
            .iter()
            .all(|(_, reason)| reason == "deeper than 32 directories")
    );
    assert!(session.scratch(&deepest).is_dir());
}

#[test]
fn odd_names_are_refused_escaped_and_long_ones_kept() {
    let session = Session::new();
    let odd: [(&[u8], &str); 5] = [
        (b"new\nline", "/scratch/new\\u{a}line"),
        (b"\x1b[2J", "/scratch/\\u{1b}[2J"),
        (b"\xff\xfe", "/scratch/\\xff\\xfe"),
        ("txt\u{202E}exe.".as_bytes(), "/scratch/txt\\u{202e}exe."),
        (b"dir\r", "/scratch/dir\\u{d}"),
    ];
    for (name, _) in &odd[..4] {
        fs::write(session.upper("").join(OsStr::from_bytes(name)), b"").unwrap();
    }
    fs::create_dir_all(
        session
            .upper("")
            .join(OsStr::from_bytes(odd[4].0))
            .join("inner"),
    )
    .unwrap();
    let long = "x".repeat(255);
    for name in [
        long.as_str(),
        "Case",
        "case",
        "-rf",
        "übung",
        "a b",
        "caf\u{e9}",
        "cafe\u{301}",
    ] {
        fs::write(session.upper(name), name).unwrap();
    }
    let (session, committed) = keep(session, roomy());
    let mut expected: Vec<_> = odd.iter().map(|(_, shown)| (*shown).to_owned()).collect();
    expected.sort();
    let listed: Vec<_> = refusals(&committed.unwrap())
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(listed, expected);
    assert_eq!(session.picture().len(), 8);
    assert_eq!(session.picture()[&format!("scratch/{long}")].0.len(), 255);
}

#[test]
fn a_path_that_is_too_long_is_refused() {
    let session = Session::new();
    let long = ["y".repeat(255), "y".repeat(255)].join("/");
    let path = (0..8).map(|_| long.as_str()).collect::<Vec<_>>().join("/");
    // Longer than what a path may say, so it is made step by step.
    let mut at = crate::support::directory(&session.upper(""));
    for name in path.split('/') {
        rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
        at = rustix::fs::openat(&at, name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let (_session, committed) = keep(session, roomy());
    let committed = committed.unwrap();
    assert_eq!((committed.directories, committed.refused_total), (15, 1));
    assert_eq!(
        committed.refused[0].reason.to_string(),
        "the path is longer than 4096 bytes"
    );
}

#[test]
fn closed_directories_are_opened_and_kept_open() {
    let session = Session::new();
    fs::create_dir_all(session.upper("closed/inner")).unwrap();
    fs::write(session.upper("closed/inner/file"), b"x").unwrap();
    let changes = session.changes();
    for (path, mode) in [
        ("closed/inner/file", 0),
        ("closed/inner", 0),
        ("closed", 0),
        ("", 0),
    ] {
        fs::set_permissions(session.upper(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let committed = commit(&session.directory, &changes, &roomy(), None);
    assert_eq!(committed.unwrap().files, 1);
    assert_eq!(session.picture()["scratch/closed/"].1, 0o755);
    assert_eq!(session.picture()["scratch/closed/inner/file"].1, 0o644);
}

#[test]
fn forged_attributes_reach_nothing() {
    let session = Session::new();
    fs::write(session.path("secret"), b"secret").unwrap();
    fs::create_dir(session.scratch("victim")).unwrap();
    fs::write(session.scratch("victim/file"), b"mine").unwrap();
    fs::create_dir(session.upper("moved")).unwrap();
    set_attribute(
        &session.upper("moved"),
        "user.overlay.redirect",
        b"/../../secret",
    );
    fs::write(session.upper("meta"), b"own").unwrap();
    set_attribute(&session.upper("meta"), "user.overlay.metacopy", b"");
    set_attribute(
        &session.upper("meta"),
        "user.overlay.redirect",
        session.path("secret").as_os_str().as_bytes(),
    );
    fs::write(session.upper("white"), b"").unwrap();
    set_attribute(&session.upper("white"), "user.overlay.whiteout", b"y");
    set_attribute(&session.upper(""), "user.overlay.opaque", b"y");
    let (session, committed) = keep(session, roomy());
    assert_eq!(committed.unwrap().refused_total, 0);
    let picture = session.picture();
    let paths: Vec<&str> = picture.keys().map(String::as_str).collect();
    let expected = [
        "scratch/meta",
        "scratch/moved/",
        "scratch/victim/",
        "scratch/victim/file",
        "scratch/white",
    ];
    assert_eq!(paths, expected);
    assert_eq!(picture["scratch/meta"].0, b"own");
    assert!(picture.values().all(|(content, _)| content != b"secret"));
}

#[test]
fn names_of_the_hosts_own_files_mean_nothing_in_a_layer() {
    let session = Session::new();
    fs::create_dir_all(session.upper(".mooring/staging")).unwrap();
    for name in [
        ".mooring/journal.json",
        ".mooring/turn.json",
        "new-1",
        "old-1",
        ".session.lock",
    ] {
        fs::write(session.upper(name), b"{\"version\":1,\"turn\":999}").unwrap();
    }
    let (session, committed) = keep(session, roomy());
    assert_eq!(committed.unwrap().files, 5);
    assert_eq!(session.host_files(), [".mooring/staging/"]);
    commit(&session.directory, &session.changes(), &roomy(), Some(1))
        .expect("no turn was recorded");
}

#[test]
fn very_many_entries_are_given_up_before_they_are_walked() {
    let session = Session::new();
    for number in 0..2000 {
        symlink("nowhere", session.upper(&number.to_string())).unwrap();
    }
    let (session, committed) = keep(
        session,
        Limits {
            inodes: 20_000,
            ..roomy()
        },
    );
    let committed = committed.unwrap();
    assert_eq!(
        (committed.refused_total, committed.refused.len()),
        (2000, 100)
    );
    let (_session, refused) = keep(
        session,
        Limits {
            inodes: 16,
            ..roomy()
        },
    );
    assert!(
        matches!(
            refused,
            Err(CommitError::OverLimit {
                limit: "inodes",
                ..
            })
        ),
        "{refused:?}"
    );
}
