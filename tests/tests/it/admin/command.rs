//! The commands over the admin API, as processes at a live fleet.

use std::process::{Command, Output};

use anyhow::ensure;
use mooring_tests::paths;
use serde_json::Value;

use super::{Scene, digests};

impl Scene {
    /// Runs `mooring` as an operator, without a terminal.
    async fn command(&self, gateway: usize, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(paths::binary("mooring")?);
        command
            .args(words)
            .args(["--gateway", &self.gateways[gateway].url("")])
            .args(["--user", "olga", "--roles", "admin"])
            .env_clear()
            .env("HOME", self.directory.path())
            .stdin(std::process::Stdio::null());
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    /// What a command that has to succeed prints.
    async fn printed(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.command(0, words).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {errors}");
        Ok(String::from_utf8(output.stdout)?)
    }
}

#[tokio::test]
async fn operators_search_and_end_sessions_from_the_shell() -> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    for user in ["ada", "ada", "bob"] {
        scene.session(1, user).await?;
    }
    let table = scene.printed(&["sessions", "search", "user:ada"]).await?;
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("SESSION") && lines.len() == 3,
        "{table}"
    );
    assert!(
        lines[1].contains("mcp") && lines[1].contains("ada"),
        "{table}"
    );
    let json = scene
        .printed(&["sessions", "search", "--limit", "2", "--json"])
        .await?;
    let found: Value = serde_json::from_str(&json)?;
    assert_eq!(
        (digests(&found).len(), &found["has_more"]),
        (2, &true.into())
    );

    let end = ["sessions", "end-matching", "user:ada"];
    let refused = scene.command(0, &end).await?;
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(64), "{errors}");
    assert!(errors.contains("--yes"), "{errors}");
    let shown = scene.printed(&[&end[..], &["--dry-run"]].concat()).await?;
    assert!(shown.contains("2 sessions"), "{shown}");
    assert_eq!(digests(&scene.get(0, "/admin/sessions").await?).len(), 3);
    let ended = scene.printed(&[&end[..], &["--yes"]].concat()).await?;
    assert_eq!(ended, "2 sessions ended\n");
    assert_eq!(digests(&scene.get(0, "/admin/sessions").await?).len(), 1);
    let wrong = scene.command(0, &["sessions", "search", "state:x"]).await?;
    assert_eq!(wrong.status.code(), Some(1));
    Ok(())
}

#[tokio::test]
async fn operators_list_park_and_drain_from_the_shell() -> anyhow::Result<()> {
    let scene = Scene::over_redis().await?;
    scene.session(0, "ada").await?;
    let workers = scene.printed(&["workers", "list"]).await?;
    assert_eq!(workers.matches("serving").count(), 2, "{workers}");
    let servers = scene.printed(&["servers", "list"]).await?;
    assert!(
        servers.contains("orders") && servers.contains("http"),
        "{servers}"
    );
    let park = ["servers", "park", "orders", "--note", "a new disk"];
    assert_eq!(scene.command(0, &park).await?.status.code(), Some(64));
    let parked = scene.printed(&[&park[..], &["--yes"]].concat()).await?;
    assert_eq!(parked, "servers.park orders: done\n");
    let shown = scene.printed(&["servers", "show", "orders"]).await?;
    assert!(
        shown.contains("olga") && shown.contains("a new disk"),
        "{shown}"
    );
    let unparked = scene
        .printed(&["servers", "unpark", "orders", "-y"])
        .await?;
    assert!(unparked.ends_with("done\n"), "{unparked}");
    let worker = scene.get(0, "/admin/workers").await?["workers"][1]["worker"].clone();
    let worker = worker.as_str().unwrap_or_default();
    let drained = ["workers", "drain", worker, "--yes", "--wait"];
    let drained = scene.printed(&drained).await?;
    assert!(drained.contains("owns no connection"), "{drained}");
    let again = scene
        .printed(&["workers", "undrain", worker, "--yes"])
        .await?;
    assert!(again.ends_with("done\n"), "{again}");
    Ok(())
}

#[tokio::test]
async fn each_shell_gets_a_completion_script() -> anyhow::Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let mut command = Command::new(paths::binary("mooring")?);
        let output = command.args(["completion", shell]).env_clear().output()?;
        let script = String::from_utf8(output.stdout)?;
        assert!(
            output.status.success() && script.contains("end-matching"),
            "{shell}"
        );
    }
    Ok(())
}
