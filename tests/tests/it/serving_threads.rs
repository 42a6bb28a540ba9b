//! Gateways that serve with several threads: each takes its share, a session is one whichever thread its calls meet,
//! Redis may break a connection of any of them, and none loses a call when the gateway stops.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gate::Gate;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::{McpSession, read_exchange, result_of};
use mooring_tests::wait;
use serde_json::json;

const THREADS: usize = 3;
const CALLS: u64 = 50;
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

struct Scene {
    gateway: Gateway,
    redis: Redis,
    _fixture: Fixture,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    async fn start_with(redis_arguments: &[&str]) -> anyhow::Result<Self> {
        let redis = Redis::start_with(Module::Loaded, redis_arguments).await?;
        let fixture = Fixture::start("threads").await?;
        let settings = settings_toml(&redis.url(), &[fixture.url()]);
        let settings = Settings::toml(settings).env("MOORING_WORKER_THREADS", &THREADS.to_string());
        Ok(Self {
            gateway: Gateway::start("threads", settings).await?,
            redis,
            _fixture: fixture,
        })
    }

    /// Sessions whose clients have a connection each, two for each thread.
    async fn sessions(&self) -> anyhow::Result<Vec<McpSession>> {
        let endpoints = [self.gateway.mcp_url("tools")];
        let open = (0..2 * THREADS).map(async |_| {
            let client = HttpClient::default();
            McpSession::open(&client, &endpoints).await
        });
        try_join_all(open).await
    }

    /// How often each serving thread has waited so far.
    fn waits(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let process = self.gateway.process().id();
        let mut waits = BTreeMap::new();
        for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let task = task?.path();
            let name = std::fs::read_to_string(task.join("comm"))?
                .trim()
                .to_owned();
            let status = std::fs::read_to_string(task.join("status"))?;
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
                .context("a count of switches")?;
            if name == "mooring" || name.starts_with("serve-") {
                waits.insert(name, count.trim().parse()?);
            }
        }
        Ok(waits)
    }
}

async fn count_to(mut session: McpSession, from: u64, to: u64) -> anyhow::Result<McpSession> {
    for expected in from..=to {
        assert_eq!(session.increment().await?, expected);
    }
    Ok(session)
}

#[tokio::test]
async fn every_thread_serves_its_share() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let before = scene.waits()?;
    assert_eq!(before.len(), THREADS, "{before:?}");
    let sessions = scene.sessions().await?;
    try_join_all(
        sessions
            .into_iter()
            .map(|session| count_to(session, 1, CALLS)),
    )
    .await?;
    let after = scene.waits()?;
    for (thread, before) in before {
        let waits = after[&thread] - before;
        assert!(waits >= CALLS, "{thread} waited {waits} times: {after:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_is_one_over_all_threads() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let endpoints = [scene.gateway.mcp_url("tools")];
    let first = McpSession::open(&HttpClient::default(), &endpoints).await?;
    let connections = (0..2 * THREADS).map(|_| first.fork(&HttpClient::default(), &endpoints));
    let counts = connections.map(async |mut session| {
        let mut counts = Vec::new();
        for _ in 0..CALLS {
            counts.push(session.increment().await?);
        }
        anyhow::Ok(counts)
    });
    let mut counts: Vec<u64> = try_join_all(counts).await?.concat();
    counts.sort_unstable();
    let all: Vec<u64> = (1..=CALLS * 2 * THREADS as u64).collect();
    assert_eq!(counts, all);
    Ok(())
}

/// Redis closes the connections of idle clients, and operators do: whichever thread sends the next command opens its own
/// again.
#[tokio::test]
async fn connections_that_redis_closes_are_opened_again_by_every_thread() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let mut sessions = scene.sessions().await?;
    for round in 0..3 {
        let calls = sessions
            .into_iter()
            .map(|session| count_to(session, round * 5 + 1, round * 5 + 5));
        sessions = try_join_all(calls).await?;
        scene
            .redis
            .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        let endpoint = scene.gateway.url("/readyz");
        wait::until_true("the gateway to be ready", CLOSED_WITHIN, async || {
            let reply = HttpClient::default().get(&endpoint).await?;
            Ok(reply.status.is_success())
        })
        .await?;
    }
    Ok(())
}

/// At its limit of clients Redis has room for the gateway's first connection and the one for wake-ups.
#[tokio::test]
async fn threads_that_redis_refuses_a_connection_share_the_first() -> anyhow::Result<()> {
    let mut scene = Scene::start_with(&["--maxclients", "2"]).await?;
    let sessions = scene.sessions().await?;
    try_join_all(sessions.into_iter().map(|session| count_to(session, 1, 5))).await?;
    wait::until_true("every thread to be refused", CLOSED_WITHIN, async || {
        let log = scene.gateway.process().log_text();
        let refused = log.matches("has no connection to redis of its own").count();
        Ok(refused == THREADS - 1)
    })
    .await
}

#[tokio::test]
async fn calls_on_every_thread_finish_when_the_gateway_stops() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let gate = Gate::new()?;
    let mut calls = Vec::new();
    for mut session in scene.sessions().await? {
        let call = json!({"name": "slow_increment", "arguments": {"until": gate.path()}});
        let call = session.request_body("tools/call", call);
        calls.push((session.post(&call).await?, call));
    }
    let endpoint = scene.gateway.url("/healthz");
    let stopped = async { scene.gateway.process().terminate().await };
    let finished = async {
        wait::until_true("the listener's end", CLOSED_WITHIN, async || {
            Ok(HttpClient::default().get(&endpoint).await.is_err())
        })
        .await?;
        gate.open()?;
        for (reply, call) in calls {
            let exchange = read_exchange(reply, &call).await?;
            result_of(exchange.response)?;
        }
        anyhow::Ok(())
    };
    let (status, finished) = tokio::join!(stopped, finished);
    finished?;
    assert!(status?.success());
    Ok(())
}
