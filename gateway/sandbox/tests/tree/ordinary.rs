//! All of it once more as an ordinary user, where these tests are run by root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use tempfile::TempDir;

use crate::support::is_root;

const ORDINARY: u32 = 61_234;

#[test]
fn everything_holds_for_an_ordinary_user() {
    if !is_root() {
        // Then the others ran as one already.
        return;
    }
    let base = TempDir::new_in("/tmp").unwrap();
    let binary = base.path().join("tree");
    // Copied by another process: while this one has it open for writing, so may a child that another test starts.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&binary)
        .status()
        .unwrap();
    assert!(copied.success());
    for path in [base.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        chown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
    }
    let output = Command::new(&binary)
        .current_dir(base.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TMPDIR", base.path())
        .uid(ORDINARY)
        .gid(ORDINARY)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
