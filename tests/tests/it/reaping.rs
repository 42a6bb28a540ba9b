//! What the tests of cleaning up share: a fleet whose sessions expire soon and are looked for often, and views of what
//! is left of them.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use crate::recovery::counted;

/// How long sessions that are over may take to be cleaned up: longer than any lease on it, on a machine that is busy.
pub(crate) const CLEANED_WITHIN: Duration = Duration::from_secs(60);

/// Settings under which a session expires after a second and is looked for ten times a second.
pub(crate) fn reaping(store_url: &str, instances: &[String]) -> Settings {
    Settings::toml(settings_toml(store_url, instances))
        .env("MOORING_AFFINITY_TTL_SECONDS", "1")
        .env("MOORING_AFFINITY_REAP_INTERVAL_MS", "100")
}

/// Opens this many sessions over `endpoints` in turn, each used once.
pub(crate) async fn open_sessions(
    endpoints: &[String],
    count: usize,
) -> anyhow::Result<Vec<McpSession>> {
    let client = HttpClient::default();
    let mut sessions = Vec::with_capacity(count);
    for number in 0..count {
        let mut endpoints = endpoints.to_vec();
        let first = number % endpoints.len().max(1);
        endpoints.rotate_left(first);
        let mut session = McpSession::open(&client, &endpoints).await?;
        assert_eq!(session.increment().await?, 1);
        sessions.push(session);
    }
    Ok(sessions)
}

/// The endpoints of the server `tools` on these gateways.
pub(crate) fn endpoints_of(gateways: &[Gateway]) -> Vec<String> {
    let url = |gateway: &Gateway| gateway.mcp_url("tools");
    gateways.iter().map(url).collect()
}

/// The key under which a session's record stands.
pub(crate) fn key_of(session: &McpSession) -> String {
    let id = session.id().unwrap_or_default();
    format!("mcpgw:session_affinity:{id}")
}

/// The keys of all records, tombstones included.
pub(crate) fn records(redis: &Redis) -> anyhow::Result<Vec<String>> {
    let keys = redis.cli(&["--scan", "--pattern", "mcpgw:session_affinity:*"])?;
    Ok(keys.lines().map(str::to_owned).collect())
}

/// Waits until no record is left.
pub(crate) async fn until_no_record(redis: &Redis) -> anyhow::Result<()> {
    wait::until_true(
        "every tombstone to be dropped",
        CLEANED_WITHIN,
        async || Ok(records(redis)?.is_empty()),
    )
    .await
}

/// DELETEs that the instances have answered, known sessions or not, and sessions that live there.
pub(crate) async fn deletes_and_live(instances: &[&Fixture]) -> anyhow::Result<(u64, usize)> {
    let (mut deletes, mut live) = (0, 0);
    for instance in instances {
        let stats = instance.stats().await?;
        deletes += stats.deletes;
        live += stats.sessions_live;
    }
    Ok((deletes, live))
}

/// Attempts of the reaper with this outcome, over the gateways.
pub(crate) async fn reaped(gateways: &[Gateway], outcome: &str) -> anyhow::Result<u64> {
    let label = format!("outcome=\"{outcome}\"");
    counted(gateways, "mooring_reaped_sessions_total", &[&label]).await
}

/// How often Redis has run a command since it started.
pub(crate) fn calls(redis: &Redis, command: &str) -> anyhow::Result<u64> {
    let statistics = redis.cli(&["INFO", "commandstats"])?;
    let name = format!("cmdstat_{command}:calls=");
    let count = statistics.lines().find_map(|line| {
        let rest = line.strip_prefix(&name)?;
        rest.split(',').next()?.parse().ok()
    });
    Ok(count.unwrap_or(0))
}
