//! Paths of the binaries under test and the pinned tools.
//!
//! Invariant: the binaries were built with the same profile into the same target directory as the test itself; nothing
//! with the project's own names is searched in the PATH.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The workspace's root.
#[must_use]
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// A binary of this workspace, for instance `mooring`. Build it first: cargo builds only this crate's own
/// for a test.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    built(name)
}

/// The Redis module, `libmooring.so`.
pub fn redis_module() -> anyhow::Result<PathBuf> {
    built("libmooring.so")
}

/// The module of the build that writes the next version of records.
pub fn next_redis_module() -> anyhow::Result<PathBuf> {
    built("../next-record-version/debug/libmooring.so").context(
        "cargo build --package mooring-module --lib --features next-record-version --target-dir target/next-record-version",
    )
}

/// A pinned tool, for instance `conformance`; `tests/tools/install.sh` puts it there.
pub fn tool(name: &str) -> anyhow::Result<PathBuf> {
    let path = workspace().join(".tools/bin").join(name);
    ensure!(
        path.exists(),
        "{} is missing: run tests/tools/install.sh",
        path.display()
    );
    Ok(path)
}

/// A file of this crate, for instance `clients/round_robin.py`.
pub fn test_file(name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    ensure!(path.exists(), "{} is missing", path.display());
    Ok(path)
}

/// The directory of `name` in the running test's target directory: a test is in `PROFILE/deps`, a binary in `PROFILE`.
fn built(name: &str) -> anyhow::Result<PathBuf> {
    let executable = std::env::current_exe().context("find the running executable")?;
    let mut directory = executable
        .parent()
        .context("the executable lies in a directory")?;
    if directory.ends_with("deps") {
        directory = directory.parent().context("deps lies in a directory")?;
    }
    let path = directory.join(name);
    ensure!(
        path.exists(),
        "{} is missing: run cargo build --workspace",
        path.display()
    );
    Ok(path)
}
