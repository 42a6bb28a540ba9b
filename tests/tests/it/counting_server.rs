//! A stateful server of a third party's making, fastmcp, in two instances behind three gateways: its counts
//! live in its own per-session state, so that a request that reached another session would show at once.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::servers::Server;
use mooring_tests::wait;
use serde_json::Map;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::clients::assert_whole;
use crate::fleet::{assert_no_count_lost, round_robin};
use crate::rmcp_client::RmcpSession;

/// How many sessions count at once.
const SESSIONS: usize = 64;

/// Both instances start side by side: Python takes its time.
async fn two_instances() -> anyhow::Result<(Server, Server)> {
    tokio::try_join!(Server::python_counting("a"), Server::python_counting("b"))
}

async fn fleet_before(instances: &(Server, Server)) -> anyhow::Result<Fleet> {
    Fleet::start(3, &[instances.0.url(), instances.1.url()]).await
}

async fn check_sdk(script: &str, sdk: &[&str]) -> anyhow::Result<()> {
    let instances = two_instances().await?;
    let fleet = fleet_before(&instances).await?;
    let arguments = [&["--sessions", "64", "--calls", "4"], sdk].concat();
    let report = round_robin(script, &fleet.endpoints(), &arguments).await?;
    assert_whole(&report, SESSIONS, 4);
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_counts_on_fastmcp() -> anyhow::Result<()> {
    check_sdk("round_robin.py", &[]).await
}

#[tokio::test]
async fn the_typescript_sdk_v2_counts_on_fastmcp() -> anyhow::Result<()> {
    check_sdk("round_robin.mjs", &["--sdk", "v2"]).await
}

#[tokio::test]
async fn the_typescript_sdk_v1_counts_on_fastmcp() -> anyhow::Result<()> {
    check_sdk("round_robin.mjs", &["--sdk", "v1"]).await
}

/// Which instance and which upstream session answered each of a session's calls.
async fn count_by_rmcp(
    endpoints: Vec<String>,
    first: usize,
) -> anyhow::Result<BTreeSet<(String, String)>> {
    let session = RmcpSession::open(&endpoints, first).await?;
    let mut answered_by = BTreeSet::new();
    for expected in 1..=4 {
        let result = session.call("increment", Map::new()).await?;
        let structured = result.structured_content.context("structured content")?;
        assert_eq!(structured["count"], expected, "session {first}");
        let text = |name: &str| structured[name].as_str().map(str::to_owned);
        let answer = text("instance").zip(text("session"));
        answered_by.insert(answer.with_context(|| format!("an instance: {structured}"))?);
    }
    session.close().await?;
    Ok(answered_by)
}

#[tokio::test]
async fn the_rmcp_client_counts_on_fastmcp_in_upstream_sessions_of_its_own() -> anyhow::Result<()> {
    let instances = two_instances().await?;
    let fleet = fleet_before(&instances).await?;
    let mut sessions = JoinSet::new();
    for first in 0..SESSIONS {
        sessions.spawn(count_by_rmcp(fleet.endpoints(), first));
    }
    let mut upstream_sessions = BTreeSet::new();
    while let Some(answered_by) = sessions.join_next().await {
        let answered_by = answered_by??;
        assert_eq!(
            answered_by.len(),
            1,
            "one upstream session: {answered_by:?}"
        );
        upstream_sessions.extend(answered_by);
    }
    assert_eq!(upstream_sessions.len(), SESSIONS, "none is shared");
    let used: BTreeSet<&str> = upstream_sessions
        .iter()
        .map(|(instance, _)| instance.as_str())
        .collect();
    assert_eq!(used, BTreeSet::from(["a", "b"]), "both instances work");
    Ok(())
}

/// How many requests the gateways have routed to a binding that was there.
async fn hits(gateways: &[Gateway]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for gateway in gateways {
        sum += gateway.metric("session_affinity_hits_total", &[]).await?;
    }
    Ok(sum)
}

/// SIGKILL of one gateway of three after a third of the calls.
async fn check_kill(script: &str) -> anyhow::Result<()> {
    const CALLS: u64 = 8;
    let instances = two_instances().await?;
    let mut fleet = fleet_before(&instances).await?;
    let endpoints = fleet.endpoints();
    let arguments = [
        "--sessions",
        "64",
        "--calls",
        "8",
        "--pause-ms",
        "20",
        "--broken",
        "tell",
    ];
    let killing = async {
        // Each session sends `notifications/initialized` and opens a GET stream before it calls.
        let before_calls = SESSIONS as f64 * 2.0;
        let third_of_calls = SESSIONS as f64 * CALLS as f64 / 3.0;
        wait::until_true(
            "a third of the calls",
            // The Python client imports for seconds on a busy machine, before 64 sessions are opened.
            Duration::from_secs(180),
            async || Ok(hits(&fleet.gateways).await? > before_calls + third_of_calls),
        )
        .await?;
        fleet.gateways[1].process().kill_now()
    };
    let (report, killed) = tokio::join!(round_robin(script, &endpoints, &arguments), killing);
    killed?;
    assert_no_count_lost(&report?, SESSIONS, CALLS);
    for survivor in [&fleet.gateways[0], &fleet.gateways[2]] {
        let moved = survivor
            .metric("session_affinity_rebinds_total", &["reason=\"upstream\""])
            .await?;
        assert_eq!(moved, 0.0, "a gateway's death moves no session");
    }
    Ok(())
}

#[tokio::test]
async fn sigkill_of_a_gateway_loses_no_count_of_the_python_sdk_on_fastmcp() -> anyhow::Result<()> {
    check_kill("round_robin.py").await
}

#[tokio::test]
async fn sigkill_of_a_gateway_loses_no_count_of_the_typescript_sdk_on_fastmcp() -> anyhow::Result<()>
{
    check_kill("round_robin.mjs").await
}

/// Three gateway processes whose embedded stores are one file below `state_home`.
async fn on_one_file(
    instances: &(Server, Server),
    state_home: &Path,
) -> anyhow::Result<Vec<Gateway>> {
    let toml = settings_toml("embedded", &[instances.0.url(), instances.1.url()]);
    Gateway::fleet(3, &Settings::toml(toml).state_home(state_home)).await
}

#[tokio::test]
async fn three_gateways_on_one_file_count_as_one() -> anyhow::Result<()> {
    let instances = two_instances().await?;
    let state_home = TempDir::with_prefix("mooring-state-")?;
    let gateways = on_one_file(&instances, state_home.path()).await?;
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("tools"))
        .collect();
    let arguments = ["--sessions", "16", "--calls", "10"];
    let report = round_robin("round_robin.py", &endpoints, &arguments).await?;
    assert_whole(&report, 16, 10);
    for gateway in &gateways {
        let hits = gateway.metric("session_affinity_hits_total", &[]).await?;
        assert!(hits > 0.0, "every gateway had its turn");
    }
    Ok(())
}
