//! scripts/check-imports.py, which `make check` runs: it fails on circles of imports and on forbidden dependencies that
//! are put into a small workspace on purpose, and names them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use mooring_tests::paths;
use tempfile::TempDir;

/// A workspace of the crates `mooring-settings` and `below`, whose files import each other downwards only.
fn workspace() -> anyhow::Result<TempDir> {
    let home = TempDir::with_prefix("mooring-imports-")?;
    let write = |name: &str, text: &str| -> anyhow::Result<()> {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().context("a file in a directory")?)?;
        Ok(fs::write(path, text)?)
    };
    write(
        "Cargo.toml",
        "[workspace]\nmembers = [\"settings\", \"below\"]\n",
    )?;
    let manifest = |name: &str, dependencies: &str| {
        format!("[package]\nname = \"{name}\"\n\n[dependencies]\n{dependencies}")
    };
    write(
        "settings/Cargo.toml",
        &manifest("mooring-settings", "below = {}\n"),
    )?;
    write("below/Cargo.toml", &manifest("below", "serde = \"1\"\n"))?;
    write("settings/src/lib.rs", "mod a;\nmod folder;\n")?;
    write(
        "settings/src/a.rs",
        "// use crate::folder::Z;\npub struct A;\n\n#[cfg(test)]\nmod tests {\n    use crate::folder::Z;\n}\n",
    )?;
    write(
        "settings/src/folder/mod.rs",
        "mod w;\nmod x;\nmod y;\nmod z;\n\npub use z::Z;\n",
    )?;
    write(
        "settings/src/folder/w.rs",
        "use super::x::X;\npub struct W(X);\n",
    )?;
    write(
        "settings/src/folder/x.rs",
        "use super::{y::{self}, Z};\npub struct X(y::Y, Z);\n",
    )?;
    write(
        "settings/src/folder/y.rs",
        "use super::Z;\npub struct Y(Z);\n",
    )?;
    write("settings/src/folder/z.rs", "pub struct Z(crate::a::A);\n")?;
    write("below/src/lib.rs", "")?;
    write(
        "ARCHITECTURE.md",
        "<!-- crates: scripts/check-imports.py --write --><!-- end of crates -->\n",
    )?;
    ensure!(check(home.path(), &["--write"])?.is_none());
    Ok(home)
}

/// What the check prints about this workspace; none if it passes.
fn check(workspace: &Path, flags: &[&str]) -> anyhow::Result<Option<String>> {
    let output = Command::new("python3")
        .arg(paths::workspace().join("scripts/check-imports.py"))
        .args(flags)
        .arg(workspace)
        .output()?;
    let printed = String::from_utf8(output.stderr)?;
    ensure!(output.status.success() == printed.is_empty(), "{printed}");
    Ok((!output.status.success()).then_some(printed))
}

fn append(workspace: &TempDir, name: &str, text: &str) -> anyhow::Result<()> {
    let path = workspace.path().join(name);
    let before = fs::read_to_string(&path)?;
    Ok(fs::write(path, before + text)?)
}

#[track_caller]
fn assert_found(workspace: &TempDir, problem: &str) -> anyhow::Result<()> {
    let found = check(workspace.path(), &[])?;
    ensure!(
        found.as_deref() == Some(&format!("{problem}\n")),
        "{found:?} instead of {problem:?}"
    );
    Ok(())
}

#[test]
fn a_workspace_whose_imports_lead_downwards_passes() -> anyhow::Result<()> {
    let home = workspace()?;
    let found = check(home.path(), &[])?;
    ensure!(found.is_none(), "{found:?}");
    Ok(())
}

#[test]
fn a_circle_of_more_files_than_the_limit_is_found() -> anyhow::Result<()> {
    let home = workspace()?;
    // Three files are the limit.
    append(&home, "settings/src/folder/z.rs", "use super::x::X;\n")?;
    let found = check(home.path(), &[])?;
    ensure!(found.is_none(), "{found:?}");
    append(
        &home,
        "settings/src/folder/z.rs",
        "fn f() { super::w::W::new() }\n",
    )?;
    assert_found(
        &home,
        "mooring-settings: 4 files import each other in a circle: folder/w, folder/x, folder/y, folder/z",
    )
}

#[test]
fn a_circle_between_folders_is_found() -> anyhow::Result<()> {
    let home = workspace()?;
    fs::write(
        home.path().join("settings/src/a.rs"),
        "use crate::folder::{Z as Last};\npub struct A(Last);\n",
    )?;
    assert_found(
        &home,
        "mooring-settings: 2 folders import each other in a circle: a, folder",
    )
}

#[test]
fn a_forbidden_dependency_through_another_crate_is_found() -> anyhow::Result<()> {
    let home = workspace()?;
    append(&home, "below/Cargo.toml", "redis = \"1\"\n")?;
    assert_found(
        &home,
        "mooring-settings must not depend on redis: mooring-settings -> below -> redis",
    )
}

#[test]
fn a_crate_graph_that_is_not_the_one_of_the_manifests_is_found() -> anyhow::Result<()> {
    let home = workspace()?;
    fs::write(
        home.path().join("settings/Cargo.toml"),
        "[package]\nname = \"mooring-settings\"\n",
    )?;
    assert_found(
        &home,
        "ARCHITECTURE.md has another crate graph than the manifests; run: scripts/check-imports.py --write",
    )
}
