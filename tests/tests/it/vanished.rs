//! The host of an instance vanishes: what is sent to it is neither acknowledged nor refused, over new connections as over
//! those that were open.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{Exchange, McpSession};
use serde_json::json;

use crate::recovery::{OUTCOME_UNKNOWN, attempt, call, count_of, mark_of, whoami};
use crate::rig::kept;
use crate::vanishing_host::VanishingHost;

/// How long a test waits for the answer to a call at a host that has vanished: without a limit of its own, TCP would wait
/// for a quarter of an hour.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects fail fast, and each is made anew.
fn settings(instances: &[String]) -> Settings {
    kept(instances)
        .env("MOORING_UPSTREAM_CONNECT_TIMEOUT_MS", "200")
        .env("MOORING_UPSTREAM_IDLE_CONNECTION_MS", "0")
}

/// Connections are kept for longer than any test takes, so that a call goes over a warm one.
fn warm_settings(instances: &[String]) -> Settings {
    kept(instances).env("MOORING_UPSTREAM_IDLE_CONNECTION_MS", "600000")
}

/// A session that has counted once at the instance of this name.
async fn session_at(gateway: &Gateway, instance: &str) -> anyhow::Result<McpSession> {
    let client = HttpClient::default();
    loop {
        let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
        if whoami(&mut session).await?.instance == instance {
            assert_eq!(session.increment().await?, 1);
            return Ok(session);
        }
    }
}

#[tokio::test]
async fn a_session_leaves_a_host_that_vanished() -> anyhow::Result<()> {
    let (vanishing, other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut host = VanishingHost::of(&vanishing).await?;
    let gateway = Gateway::start("one", settings(&[host.url(), other.url()])).await?;
    let mut session = session_at(&gateway, "a").await?;
    let mut second = session_at(&gateway, "a").await?;
    host.vanish().await?;

    for session in [&mut session, &mut second] {
        let moved = call(session, "increment").await?;
        assert_eq!(count_of(&moved), Some(1), "{moved:?}");
        let mark = mark_of(&moved).expect("the client is told");
        assert_eq!(mark["from"], "instance-1");
        assert_eq!(mark["to"], "instance-2");
        assert_eq!(mark["reason"], "upstream instance cannot be reached");
        let next = call(session, "increment").await?;
        assert_eq!((count_of(&next), mark_of(&next)), (Some(2), None));
    }
    // New sessions are not tried there first.
    let client = HttpClient::default();
    let mut fresh = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(whoami(&mut fresh).await?.instance, "b");
    Ok(())
}

#[tokio::test]
async fn a_session_stays_where_no_other_instance_answers() -> anyhow::Result<()> {
    let (vanishing, mut other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut host = VanishingHost::of(&vanishing).await?;
    let gateway = Gateway::start("one", settings(&[host.url(), other.url()])).await?;
    let mut session = session_at(&gateway, "a").await?;
    host.vanish().await?;
    other.process().kill_now()?;

    for _ in 0..2 {
        let refused = attempt(&mut session, "increment").await?;
        assert_eq!(refused.status, 503, "{refused:?}");
    }
    host.come_back().await?;
    let next = call(&mut session, "increment").await?;
    assert_eq!((count_of(&next), mark_of(&next)), (Some(2), None));
    Ok(())
}

/// Calls without a limit of the client's own, but one of the test.
async fn call_patiently(session: &mut McpSession, tool: &str) -> anyhow::Result<Exchange> {
    tokio::time::timeout(PATIENCE, call(session, tool))
        .await
        .context("the call hangs")?
}

fn error_code(exchange: &Exchange) -> Option<i64> {
    exchange.response.pointer("/error/code")?.as_i64()
}

/// After the error that a call may have run, the session goes on at the other instance, and says so.
async fn moves_to_the_other(session: &mut McpSession) -> anyhow::Result<()> {
    let moved = call_patiently(session, "increment").await?;
    ensure!(count_of(&moved) == Some(1), "{moved:?}");
    ensure!(mark_of(&moved).is_some(), "the client is told: {moved:?}");
    let next = call_patiently(session, "increment").await?;
    ensure!(count_of(&next) == Some(2), "{next:?}");
    Ok(())
}

#[tokio::test]
async fn a_call_over_a_warm_connection_to_a_host_that_vanished_ends() -> anyhow::Result<()> {
    let (vanishing, other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut host = VanishingHost::of(&vanishing).await?;
    let gateway = Gateway::start("one", warm_settings(&[host.url(), other.url()])).await?;
    let mut session = session_at(&gateway, "a").await?;
    host.vanish().await?;

    let unknown = call_patiently(&mut session, "increment").await?;
    assert_eq!(error_code(&unknown), Some(OUTCOME_UNKNOWN), "{unknown:?}");
    moves_to_the_other(&mut session).await
}

#[tokio::test]
async fn a_call_in_flight_at_a_host_that_vanishes_ends() -> anyhow::Result<()> {
    let (vanishing, other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut host = VanishingHost::of(&vanishing).await?;
    let gateway = Gateway::start("one", warm_settings(&[host.url(), other.url()])).await?;
    let mut session = session_at(&gateway, "a").await?;

    let params = json!({"name": "hang", "arguments": {}});
    let calling = tokio::time::timeout(PATIENCE, session.request("tools/call", params));
    let vanishing = async {
        while vanishing.stats().await?.calls_of("hang") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        host.vanish().await
    };
    let (unknown, vanished) = tokio::join!(calling, vanishing);
    vanished?;
    let unknown = unknown.context("the call hangs")??;
    assert_eq!(error_code(&unknown), Some(OUTCOME_UNKNOWN), "{unknown:?}");
    moves_to_the_other(&mut session).await
}
