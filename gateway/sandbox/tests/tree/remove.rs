//! Removing trees that were made to be kept.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;

use mooring_sandbox::tree::{remove, usage};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use tempfile::TempDir;

use crate::support::{child, directory, make_device, make_fifo};

const DEPTH: usize = 3000;

/// Makes directories within directories, deeper than any path can say.
fn make_deep(base: &Path, depth: usize) {
    let mut at = directory(base);
    for level in 0..depth {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        if level % 100 == 0 {
            openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        }
        at = openat(&at, "d", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    }
}

#[test]
fn a_deep_tree_goes_with_few_open_files() {
    const VARIABLE: &str = "MOORING_TEST_REMOVE_DEEP";
    if std::env::var_os(VARIABLE).is_none() {
        let inner = child(
            "remove::a_deep_tree_goes_with_few_open_files",
            VARIABLE,
            "1",
        );
        let status = std::process::Command::new("prlimit")
            .arg("--nofile=24")
            .arg("--stack=1048576")
            .arg(std::env::current_exe().unwrap())
            .args(inner.get_args())
            .env(VARIABLE, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let base = TempDir::new().unwrap();
    fs::create_dir(base.path().join("t")).unwrap();
    make_deep(&base.path().join("t"), DEPTH);
    assert!(
        fs::remove_dir_all(base.path().join("t")).is_err(),
        "the standard library runs out of files here"
    );
    assert!(
        usage(directory(base.path()).as_fd()).is_err(),
        "too deep to be measured"
    );
    remove(directory(base.path()).as_fd(), OsStr::new("t")).unwrap();
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn hostile_modes_names_and_kinds_go_and_what_they_point_to_stays() {
    let base = TempDir::new().unwrap();
    let tree = base.path().join("tree");
    let outside = base.path().join("outside");
    fs::create_dir_all(outside.join("inner")).unwrap();
    fs::write(outside.join("kept"), b"kept").unwrap();
    fs::create_dir_all(tree.join("closed/inner/deeper")).unwrap();
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe",
        b"-rf",
        b"\x1b[2J",
        &[b'x'; 255],
        b"1",
        b"2",
        b"3",
    ] {
        fs::create_dir_all(tree.join(OsStr::from_bytes(name)).join("in/side")).unwrap();
        fs::write(tree.join("closed").join(OsStr::from_bytes(name)), b"").unwrap();
    }
    symlink(&outside, tree.join("link")).unwrap();
    symlink(&outside, tree.join("closed/inner/link")).unwrap();
    make_fifo(&tree.join("closed/fifo"));
    make_device(&tree.join("closed/device"), 0, 0);
    fs::hard_link(outside.join("kept"), tree.join("hard")).unwrap();
    for (path, mode) in [
        ("closed/inner/deeper", 0),
        ("closed/inner", 0o500),
        ("closed", 0),
        ("1/in", 0o111),
    ] {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    remove(directory(base.path()).as_fd(), OsStr::new("tree")).unwrap();
    let left: Vec<_> = fs::read_dir(base.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["outside"]);
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
    assert!(outside.join("inner").is_dir());
}

#[test]
fn a_link_is_removed_and_not_its_target() {
    let base = TempDir::new().unwrap();
    fs::create_dir(base.path().join("target")).unwrap();
    fs::write(base.path().join("target/file"), b"").unwrap();
    symlink("target", base.path().join("link")).unwrap();
    remove(directory(base.path()).as_fd(), OsStr::new("link")).unwrap();
    assert!(base.path().join("target/file").is_file());
    assert!(fs::symlink_metadata(base.path().join("link")).is_err());
    remove(directory(base.path()).as_fd(), OsStr::new("link"))
        .expect("nothing standing there is fine");
    for bad in ["", ".", "..", "target/file", "/etc"] {
        assert!(
            remove(directory(base.path()).as_fd(), OsStr::new(bad)).is_err(),
            "{bad}"
        );
    }
    assert_eq!(
        remove(
            openat(CWD, base.path(), OFlags::PATH, Mode::empty())
                .unwrap()
                .as_fd(),
            OsStr::new("target")
        )
        .ok(),
        Some(())
    );
}

#[test]
fn several_may_remove_the_same_tree() {
    for round in 0..20 {
        let base = TempDir::new().unwrap();
        let tree = base.path().join("tree");
        for number in 0..30 {
            fs::create_dir_all(tree.join(format!("{number}/{}/{round}", number % 7))).unwrap();
            fs::write(tree.join(format!("{number}/file")), b"").unwrap();
        }
        make_deep(&tree, 100);
        thread::scope(|scope| {
            let removers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| remove(directory(base.path()).as_fd(), OsStr::new("tree"))))
                .collect();
            for remover in removers {
                remover.join().unwrap().unwrap();
            }
        });
        assert!(!tree.exists());
    }
}
