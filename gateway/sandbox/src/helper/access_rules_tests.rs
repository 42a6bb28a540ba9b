//! Every version that is asked for holds what a run must not reach, and lets it do what it may.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::thread;

use tempfile::TempDir;

use super::*;

/// Landlock restricts the calling thread, so that each version is tried on one of its own.
fn in_a_thread(versions: &'static [ABI]) {
    let (mine, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let secret = other.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    thread::spawn(move || {
        let rules = [(hold(mine.path()).unwrap(), write())];
        let status = restrict(&rules, None, versions).unwrap();
        assert_eq!(status, RulesetStatus::FullyEnforced, "{versions:?}");
        let denied = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
        assert!(denied(fs::read(&secret).unwrap_err()), "{versions:?}");
        assert!(denied(fs::write(&secret, "x").unwrap_err()), "{versions:?}");
        let link = symlink("/", mine.path().join("link"));
        assert!(denied(link.unwrap_err()), "{versions:?}");
        fs::write(mine.path().join("a"), "mine").unwrap();
        fs::create_dir(mine.path().join("d")).unwrap();
        fs::rename(mine.path().join("a"), mine.path().join("d/a")).unwrap();
        assert_eq!(fs::read(mine.path().join("d/a")).unwrap(), b"mine");
        fs::remove_file(mine.path().join("d/a")).unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn each_version_holds() {
    in_a_thread(&[ABI::V6]);
    in_a_thread(&[ABI::V5]);
    in_a_thread(&[ABI::V4]);
    in_a_thread(&[ABI::V3]);
    in_a_thread(&[ABI::V2]);
    in_a_thread(VERSIONS_IN_ROOT);
}

#[test]
fn no_version_at_all_is_no_enforcement() {
    let status = restrict(&[], None, &[]).unwrap();
    assert_eq!(status, RulesetStatus::NotEnforced);
}
