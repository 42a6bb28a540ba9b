//! Servers that a reload adds, changes and removes.

use anyhow::ensure;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::load::Load;
use super::{SEEN_WITHIN, http_server, program};

/// The session's instance, by its name.
async fn instance_of(session: &mut McpSession) -> anyhow::Result<String> {
    let told = session.call("whoami", json!({})).await?;
    Ok(told.to_string())
}

async fn error_of(session: &mut McpSession) -> anyhow::Result<(u16, String)> {
    let body = session.request_body("tools/call", json!({"name": "increment", "arguments": {}}));
    let reply = session.post(&body).await?;
    let status = reply.status.as_u16();
    let answer: Value = reply.json().await?;
    Ok((status, answer.to_string()))
}

#[tokio::test]
async fn servers_come_change_and_go_under_load_and_the_others_notice_nothing() -> anyhow::Result<()>
{
    let (kept, one, two) = (
        Fixture::start("kept").await?,
        Fixture::start("one").await?,
        Fixture::start("two").await?,
    );
    let (gone, late) = (Fixture::start("gone").await?, Fixture::start("late").await?);
    let unchanged = http_server("kept", &[kept.url()]) + &program("program")?;
    let before = [
        unchanged.clone(),
        http_server("pair", &[one.url(), two.url()]),
        http_server("gone", &[gone.url()]),
        program("quitting")?,
    ];
    let mut gateway = Gateway::start("reloading", Settings::toml(before.concat())).await?;
    let endpoints = ["kept", "program"].map(|server| gateway.mcp_url(server));
    let load = Load::start(&endpoints, 3).await?;

    let client = HttpClient::default();
    let open = async |server: &str| McpSession::open(&client, &[gateway.mcp_url(server)]).await;
    let (mut leaving, mut quitting) = (open("gone").await?, open("quitting").await?);
    assert_eq!(leaving.increment().await?, 1);
    assert_eq!(quitting.increment().await?, 1);
    // New sessions of a server are spread over its instances.
    let (mut staying, mut moved) = (open("pair").await?, open("pair").await?);
    if instance_of(&mut staying).await?.contains("two") {
        std::mem::swap(&mut staying, &mut moved);
    }
    assert!(instance_of(&mut moved).await?.contains("two"));
    for count in 1..=3 {
        assert_eq!(staying.increment().await?, count);
        assert_eq!(moved.increment().await?, count);
    }
    load.answers(20).await?;

    let after = [
        http_server("late", &[late.url()]),
        unchanged,
        http_server("pair", &[one.url()]),
    ];
    gateway.write_settings(&after.concat())?;
    gateway.hang_up()?;
    let log = wait::until_logged("settings reloaded", 1, || gateway.process().log_text()).await?;
    for part in [
        "servers_added=late",
        "servers_changed=pair",
        "servers_removed=\"gone, quitting\"",
    ] {
        assert!(log.contains(part), "{part} is not in: {log}");
    }

    let mut new = McpSession::open(&client, &[gateway.mcp_url("late")]).await?;
    assert_eq!(new.increment().await?, 1);
    assert_eq!(staying.increment().await?, 4, "its instance remains");
    assert!(instance_of(&mut moved).await?.contains("one"));
    for (session, reason) in [
        (&mut leaving, "gone was removed"),
        (&mut quitting, "quitting was removed"),
    ] {
        let (status, error) = error_of(session).await?;
        assert_eq!(status, 404, "{error}");
        assert!(error.contains(reason), "{error}");
    }
    wait::until_true(
        "the end of the session's process",
        SEEN_WITHIN,
        async || {
            let connections = gateway.metric("mooring_connections_owned", &[]).await?;
            Ok((connections - 3.0).abs() < 0.5)
        },
    )
    .await?;
    wait::until_true("the upstream session's end", SEEN_WITHIN, async || {
        Ok(gone.stats().await?.sessions_live == 0)
    })
    .await?;
    load.answers(20).await?;
    load.stop().await?;
    ensure!(kept.stats().await?.deletes == 0, "no session was ended");
    Ok(())
}

#[tokio::test]
async fn a_group_loses_a_member_and_its_sessions_go_on_with_the_others() -> anyhow::Result<()> {
    let (one, two) = (Fixture::start("one").await?, Fixture::start("two").await?);
    let group = |members: &[&str]| {
        format!("[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = {members:?}\n")
    };
    let first = http_server("one", &[one.url()]);
    let before = [
        first.clone(),
        http_server("two", &[two.url()]),
        group(&["one", "two"]),
    ];
    let mut gateway = Gateway::start("grouping", Settings::toml(before.concat())).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("all")]).await?;
    for member in ["one", "two"] {
        let told = session
            .call(&format!("{member}__increment"), json!({}))
            .await?;
        assert_eq!(told["structuredContent"]["count"], 1, "{member}: {told}");
    }
    gateway.write_settings(&(first + &group(&["one"])))?;
    gateway.hang_up()?;
    wait::until_logged("settings reloaded", 1, || gateway.process().log_text()).await?;
    let told = session.call("one__increment", json!({})).await?;
    assert_eq!(told["structuredContent"]["count"], 2, "{told}");
    let tools = session.request("tools/list", json!({})).await?.response;
    let tools = tools.to_string();
    ensure!(
        tools.contains("one__") && !tools.contains("two__"),
        "{tools}"
    );
    wait::until_true("the end of the member's session", SEEN_WITHIN, async || {
        Ok(two.stats().await?.sessions_live == 0)
    })
    .await?;
    let told = session.call("one__increment", json!({})).await?;
    assert_eq!(told["structuredContent"]["count"], 3, "{told}");
    Ok(())
}
