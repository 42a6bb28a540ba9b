//! The commands: what they print, and how they end.

use std::process::{Command, Output};

use anyhow::Context;
use mooring_tests::code::SERVER;
use mooring_tests::paths;
use serde_json::Value;

use super::{ADA, ADMIN, BOB, EVE, Scene, Who, text};

/// Runs a command against the first gateway.
async fn mooring(scene: &Scene, who: Who, words: &[&str]) -> anyhow::Result<Output> {
    let url = scene.fleet.gateways[0].url("");
    let mut command = Command::new(paths::binary("mooring")?);
    command
        .args(words)
        .args(["--gateway", &url, "--server", SERVER, "--user", who.user])
        .args(["--teams", who.teams, "--roles", who.roles])
        .env_clear();
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// One that has to succeed: what it printed.
async fn printed(scene: &Scene, who: Who, words: &[&str]) -> anyhow::Result<String> {
    let output = mooring(scene, who, words).await?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{words:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The value that is printed behind a name, which two spaces or more end.
fn field<'a>(printed: &'a str, name: &str) -> Option<&'a str> {
    printed.lines().find_map(|line| {
        let (named, value) = line.split_once("  ")?;
        (named == name).then(|| value.trim())
    })
}

#[tokio::test]
async fn the_commands_say_what_the_gateway_has() -> anyhow::Result<()> {
    let scene = Scene::start("skills_require_approval = true").await?;
    scene
        .coder(ADA)
        .await?
        .python("print('hello \\x1b[2J')")
        .await?;
    let listed = printed(&scene, ADA, &["runs", "list"]).await?;
    assert!(listed.starts_with("RUN "), "{listed}");
    assert!(listed.contains("completed"), "{listed}");
    let json = printed(&scene, ADA, &["runs", "list", "--json"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    let id = text(&json["runs"][0], "id");
    let shown = printed(&scene, ADA, &["runs", "show", &id]).await?;
    assert!(shown.contains("hello \\u{1b}[2J"), "{shown}");
    let replayed = printed(&scene, ADA, &["runs", "replay", &id]).await?;
    assert_eq!(field(&replayed, "same"), Some("true"), "{replayed}");

    let directory = tempfile::tempdir()?;
    let file = directory.path().join("greeting.py");
    std::fs::write(&file, "x = 1\n")?;
    let file = file.to_str().context("a path")?;
    let create = ["skills", "create", "greeting", "--file", file, "--json"];
    let made: Value = serde_json::from_str(&printed(&scene, ADA, &create).await?)?;
    assert_eq!(
        (&made["language"], &made["status"]),
        (&"python".into(), &"pending".into())
    );
    let (approval, skill) = (text(&made, "approval_id"), text(&made, "id"));
    assert!(
        printed(&scene, ADA, &["skills", "list"])
            .await?
            .contains(&approval)
    );
    let approved = printed(&scene, EVE, &["skills", "approve", &approval]).await?;
    assert_eq!(field(&approved, "status"), Some("approved"), "{approved}");
    assert!(
        printed(&scene, BOB, &["skills", "show", "greeting"])
            .await?
            .contains("x = 1")
    );
    let revoked = printed(&scene, EVE, &["skills", "revoke", &skill]).await?;
    assert_eq!(field(&revoked, "status"), Some("revoked"), "{revoked}");
    assert_eq!(field(&revoked, "revoked by"), Some(EVE.user), "{revoked}");
    assert!(
        printed(&scene, ADMIN, &["events", "list", "--since", "1h"])
            .await?
            .starts_with("WHEN")
    );
    Ok(())
}

#[tokio::test]
async fn a_command_that_comes_to_nothing_ends_with_a_documented_code() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (words, code, says) in [
        (vec!["runs", "show", unknown], 1, "run_not_found"),
        (vec!["skills", "revoke", unknown], 1, "forbidden"),
        (
            vec!["skills", "create", "x", "--file", "/no/such/file.py"],
            1,
            "could not be read",
        ),
        (
            vec!["events", "list", "--since", "yesterday"],
            64,
            "--since",
        ),
        (vec!["runs", "sleep"], 64, "sleep"),
    ] {
        let output = mooring(&scene, BOB, &words).await?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {errors}");
        assert!(errors.contains(says), "{words:?}: {errors}");
    }
    let mut command = Command::new(paths::binary("mooring")?);
    command
        .args(["runs", "list", "--gateway", "http://127.0.0.1:1"])
        .env_clear();
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    assert_eq!(output.status.code(), Some(69));
    Ok(())
}
