//! All gateways, and then all instances, are restarted one by one under a thousand sessions behind nginx.
//!
//! Invariant: every reply is 200. A count continues, or begins again where the reply says so; an instance that is killed in
//! the middle of a call makes one reply that says that the call may have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::nginx::Nginx;
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, read_exchange};
use serde_json::json;
use tokio::sync::watch;

use super::{Running, initializes, some_more, stop_loads};
use crate::recovery::{OUTCOME_UNKNOWN, count_of, mark_of};

const SESSIONS: usize = 1_000;
/// Each has its part of the sessions, and calls them in turn.
const CALLERS: usize = 8;
/// Between two calls of a caller: fifty calls a second of all.
const PAUSE: Duration = Duration::from_millis(160);

/// A session that counts at its instance.
struct Counter {
    session: McpSession,
    count: u64,
    /// Whether the last call may have run.
    is_unknown: bool,
    losses: u64,
}

impl Counter {
    async fn open(client: &HttpClient, endpoint: &str) -> anyhow::Result<Self> {
        let mut counter = Self {
            session: McpSession::open(client, &[endpoint.to_owned()]).await?,
            count: 0,
            is_unknown: false,
            losses: 0,
        };
        counter.call().await?;
        ensure!(counter.count == 1, "a call was lost");
        Ok(counter)
    }

    async fn call(&mut self) -> anyhow::Result<()> {
        let params = json!({"name": "increment", "arguments": {}});
        let request = self.session.request_body("tools/call", params);
        let reply = self.session.post(&request).await?;
        let status = reply.status;
        let exchange = read_exchange(reply, &request).await;
        ensure!(status == 200, "{status}: {exchange:?}");
        let exchange = exchange?;
        if exchange.response["error"]["code"] == OUTCOME_UNKNOWN {
            self.is_unknown = true;
            return Ok(());
        }
        let is_lost = mark_of(&exchange).is_some();
        ensure!(
            is_lost || !self.is_unknown,
            "the instance was killed: {exchange:?}"
        );
        let expected = if is_lost { 1 } else { self.count + 1 };
        ensure!(
            count_of(&exchange) == Some(expected),
            "{expected} is expected: {exchange:?}"
        );
        (self.count, self.is_unknown) = (expected, false);
        self.losses += u64::from(is_lost);
        Ok(())
    }
}

/// Calls the sessions in turn until it is told to stop, and then each once more. How many of them have lost state.
async fn call_in_turn(
    mut counters: Vec<Counter>,
    stop: Arc<AtomicBool>,
    calls: watch::Sender<u64>,
) -> anyhow::Result<u64> {
    let mut next = 0;
    while !stop.load(Ordering::SeqCst) {
        let counter = &mut counters[next];
        counter
            .call()
            .await
            .with_context(|| format!("after {} calls", *calls.borrow()))?;
        next = (next + 1) % counters.len();
        calls.send_modify(|calls| *calls += 1);
        tokio::time::sleep(PAUSE).await;
    }
    for counter in &mut counters {
        counter.call().await.context("at the end")?;
        if counter.is_unknown {
            counter.call().await.context("at the end, once more")?;
        }
    }
    let lossy = counters.iter().filter(|counter| counter.losses > 0);
    Ok(u64::try_from(lossy.count())?)
}

/// Opens the sessions of a caller, each with a call, and starts to call them.
async fn start_caller(endpoint: String, stop: Arc<AtomicBool>) -> anyhow::Result<Running> {
    let client = HttpClient::default();
    let mut counters = Vec::new();
    for _ in 0..SESSIONS / CALLERS {
        counters.push(Counter::open(&client, &endpoint).await?);
    }
    let (sender, calls) = watch::channel(0);
    let task = tokio::spawn(call_in_turn(counters, stop, sender));
    Ok(Running { task, calls })
}

fn settings(redis: &Redis, fixtures: &[Fixture], keys: &FleetKeys) -> Settings {
    let urls: Vec<String> = fixtures.iter().map(Fixture::url).collect();
    Settings::toml(format!(
        "[store]\nurl = {:?}\ncommand_timeout_ms = 10000\n\n[affinity]\nenabled = true\n\n[worker]\n{}\n\
         [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = {urls:?}\n",
        redis.url(),
        keys.toml(),
    ))
    .env("MOORING_WORKER_LEAVE_MS", "200")
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_restart_storms_reach_no_client_of_a_thousand_sessions() -> anyhow::Result<()> {
    let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
    let mut fixtures = [Fixture::start("a").await?, Fixture::start("b").await?];
    let mut gateways = Gateway::fleet(3, &settings(&redis, &fixtures, &keys)).await?;
    let ports: Vec<u16> = gateways.iter().map(Gateway::port).collect();
    let nginx = Nginx::start_trying_all(&ports).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let endpoint = nginx.url("/servers/tools/mcp");
    let opening: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(start_caller(endpoint.clone(), Arc::clone(&stop))))
        .collect();
    let mut callers = Vec::new();
    for opening in opening {
        callers.push(opening.await??);
    }
    for gateway in &mut gateways {
        let status = gateway.process().terminate().await?;
        ensure!(status.success(), "{status}");
        gateway.restart().await?;
        some_more(&callers).await?;
    }
    let opened = initializes(&fixtures).await?;
    assert_eq!(opened, SESSIONS, "no session was moved");
    for fixture in &mut fixtures {
        fixture.restart().await?;
        some_more(&callers).await?;
    }
    let lossy = stop_loads(callers, &stop).await?;
    assert_eq!(lossy, u64::try_from(SESSIONS)?, "each instance was killed");
    Ok(())
}
