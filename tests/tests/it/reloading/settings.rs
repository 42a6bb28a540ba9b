//! Policies, keys, limits and the log's level that a reload changes, and what it names because it cannot.

use std::process::Command;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::session::{McpSession, Opening};
use serde_json::Value;

/// `POST /admin/reload` by this user with the role `admin`, or as whoever connects: status and body.
pub(super) async fn post_reload(
    gateway: &Gateway,
    user: Option<(&str, &str)>,
) -> anyhow::Result<(u16, Value)> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(gateway.url("/admin/reload"));
    if let Some((user, role)) = user {
        request = request
            .header("x-mooring-user", user)
            .header("x-mooring-roles", role);
    }
    let reply = HttpClient::default()
        .send(request.body(Bytes::new())?)
        .await?;
    Ok((reply.status.as_u16(), reply.json().await?))
}

/// `mooring reload` against this gateway: its exit code and what it prints.
fn run_reload(gateway: &Gateway, arguments: &[&str]) -> anyhow::Result<(i32, String)> {
    let output = Command::new(paths::binary("mooring")?)
        .args(["reload", "--gateway", &gateway.url("")])
        .args(arguments)
        .env_clear()
        .output()?;
    let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
    Ok((output.status.code().context("an exit code")?, text))
}

fn allowing(user: &str, instance: &str, log: &str, more: &str) -> String {
    format!(
        "{log}\n{more}\n[[servers]]\nid = \"tools\"\naffinity = \"on\"\ninstances = [{instance:?}]\n\
         allow = [{{ users = [{user:?}] }}]\n"
    )
}

#[tokio::test]
async fn policies_limits_and_the_log_level_change_and_the_rest_is_named() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let url = fixture.url();
    let before = allowing("ada", &url, "", "");
    let settings = Settings::toml(before).users_by_header();
    let mut gateway = Gateway::start("changing", settings).await?;
    let client = HttpClient::default();
    let endpoint = gateway.mcp_url("tools");
    let open = async |user: &str| {
        let opening = Opening::default().header("x-mooring-user", user)?;
        McpSession::open_with(&client, std::slice::from_ref(&endpoint), opening).await
    };
    let mut ada = open("ada").await?;
    assert_eq!(ada.increment().await?, 1);
    assert!(open("bob").await.is_err(), "bob may not use it yet");

    let limits =
        "[affinity]\nmax_sessions_per_principal = 1\n[upstream]\nconnect_timeout_ms = 900\n";
    let after = allowing("b*", &url, "[log]\nlevel = \"debug\"", limits);
    gateway.write_settings(&after)?;
    let (status, answer) = post_reload(&gateway, Some(("ada", "servers.use"))).await?;
    assert_eq!(status, 403, "{answer}");
    let arguments = ["--user", "root", "--roles", "admin"];
    let (code, text) = run_reload(&gateway, &arguments)?;
    assert_eq!(code, 0, "{text}");
    for line in [
        "servers changed: tools",
        "settings applied: affinity.max_sessions_per_principal, log.level",
        "settings that need a restart: upstream.connect_timeout_ms",
    ] {
        assert!(text.contains(line), "{line:?} is not in: {text}");
    }
    let (status, answer) = post_reload(&gateway, Some(("root", "admin"))).await?;
    assert_eq!(
        (status, &answer["servers_changed"]),
        (200, &Value::Array(vec![]))
    );
    assert_eq!(
        answer["settings_need_restart"][0],
        "upstream.connect_timeout_ms"
    );

    let mut bob = open("bob").await?;
    assert_eq!(bob.increment().await?, 1);
    ensure!(
        ada.increment().await.is_err(),
        "ada may not use it any more"
    );
    open("bob").await?;
    ensure!(
        bob.increment().await.is_err(),
        "the new limit ended bob's first session"
    );
    let log = gateway.process().log_text();
    assert!(log.contains("operator's act"), "{log}");
    assert!(log.contains("DEBUG"), "{log}");
    Ok(())
}

#[tokio::test]
async fn keys_are_rotated_by_another_file_and_a_bad_command_says_why() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let home = tempfile::TempDir::new()?;
    let create = |file: &str| -> anyhow::Result<(String, String)> {
        let file = home.path().join(file).display().to_string();
        let output = Command::new(paths::binary("mooring")?)
            .args([
                "keys", "create", "--user", "ada", "--role", "admin", "--file", &file,
            ])
            .env_clear()
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok((file, String::from_utf8(output.stdout)?.trim().to_owned()))
    };
    let ((old_file, old), (new_file, new)) = (create("old.json")?, create("new.json")?);
    let toml = |file: &str| {
        format!(
            "[auth]\nmode = \"api-key\"\napi_keys_file = {file:?}\n\
             [[servers]]\nid = \"tools\"\naffinity = \"on\"\ninstances = [{:?}]\n",
            fixture.url()
        )
    };
    let mut gateway = Gateway::start("rotating", Settings::toml(toml(&old_file))).await?;
    let client = HttpClient::default();
    let endpoint = gateway.mcp_url("tools");
    let bearer = |key: &str| format!("Bearer {key}");
    let opening = Opening::default().header("authorization", &bearer(&old))?;
    let mut session =
        McpSession::open_with(&client, std::slice::from_ref(&endpoint), opening).await?;
    assert_eq!(session.increment().await?, 1);

    gateway.write_settings(&toml(&new_file))?;
    let (code, text) = run_reload(&gateway, &[])?;
    assert_eq!(code, 1, "without a key: {text}");
    let token = home.path().join("token");
    std::fs::write(&token, &old)?;
    let (code, text) = run_reload(&gateway, &["--token-file", &token.display().to_string()])?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("settings applied: auth"), "{text}");
    ensure!(
        session.increment().await.is_err(),
        "the old key is not known any more"
    );
    session.set_header("authorization", &bearer(&new))?;
    assert_eq!(session.increment().await?, 2, "the session is its user's");
    Ok(())
}
