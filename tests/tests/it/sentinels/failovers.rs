//! Failovers under load, with what clients saw of each: killed, stopped, and cut off from the sentinels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::sentinel_group::SentinelGroup;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use super::partition::{FAR_SIDE, PartitionedAddress};
use super::{SETTLED_WITHIN, until_followed};
use crate::recovery::{attempt, count_of};

const SESSIONS_PER_GATEWAY: usize = 4;
/// Calls of each session that the store has served when the promoted server is in use.
const CALLS_AFTER: u64 = 20;
/// Far above what a request may take, so that one that hangs fails the test.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// How the primary is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// SIGKILL.
    Killed,
    /// SIGSTOP: connections stand, and nothing is answered.
    Stopped,
    /// Sentinels and replicas cannot reach it. Gateways can, and it takes itself for the primary for good.
    CutOff,
}

/// What a session saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When each good reply came, and whether it came from memory.
    good: Vec<(Instant, bool)>,
    pub(crate) refused: u64,
    count: u64,
    /// Counts that the upstream server has made and no reply had.
    repeated: u64,
    pub(crate) was_lost: bool,
}

/// Calls `increment` until it is asked to stop, or told that the session is lost.
pub(crate) async fn load(
    mut session: McpSession,
    calls: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    while !stop.load(Ordering::SeqCst) && !seen.was_lost {
        let answered = attempt(&mut session, "increment").await?;
        match answered.status.as_u16() {
            200 => {
                seen.good.push((Instant::now(), answered.is_degraded));
                if !answered.is_degraded {
                    calls.fetch_add(1, Ordering::SeqCst);
                }
                let exchange = answered.exchange.context("a reply")?;
                let Some(count) = count_of(&exchange) else {
                    // It may have run.
                    ensure!(exchange.response["error"].is_object(), "{exchange:?}");
                    continue;
                };
                ensure!(count > seen.count, "{count} after {}", seen.count);
                seen.repeated += count - seen.count - 1;
                seen.count = count;
            }
            503 => {
                answered.assert_try_again();
                seen.refused += 1;
            }
            404 => seen.was_lost = true,
            _ => anyhow::bail!("{answered:?}"),
        }
    }
    Ok(seen)
}

/// The group, and the address that its sentinels know where the primary can be cut off.
async fn start(loss: Loss) -> anyhow::Result<(SentinelGroup, Option<PartitionedAddress>)> {
    if loss != Loss::CutOff {
        return Ok((SentinelGroup::start().await?, None));
    }
    let primary = Redis::start_with(Module::Loaded, &["--protected-mode", "no"]).await?;
    let address = PartitionedAddress::before(primary.port()).await?;
    let from = format!("bind-source-addr {FAR_SIDE}");
    let settings = [&from, "protected-mode no"];
    let group = SentinelGroup::start_around(primary, address.port, &settings).await?;
    Ok((group, Some(address)))
}

#[allow(clippy::print_stdout, reason = "the times are what the test is for")]
async fn check(loss: Loss) -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let (mut group, address) = start(loss).await?;
    let toml = settings_toml(&group.url(), &[fixture.url()]);
    let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
    let client = HttpClient::new(ANSWERED_WITHIN);
    let stop = Arc::new(AtomicBool::new(false));
    let (mut loads, mut progress) = (Vec::new(), Vec::new());
    for gateway in gateways
        .iter()
        .cycle()
        .take(SESSIONS_PER_GATEWAY * gateways.len())
    {
        let session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
        let calls = Arc::new(AtomicU64::new(0));
        loads.push(tokio::spawn(load(
            session,
            Arc::clone(&calls),
            Arc::clone(&stop),
        )));
        progress.push(calls);
    }
    group.until_replicated().await?;
    let lost_at = Instant::now();
    match (loss, &address) {
        (Loss::Killed, _) => group.servers[0].process().kill_now()?,
        (Loss::Stopped, _) => group.servers[0].process().stop()?,
        (Loss::CutOff, Some(address)) => address.cut(),
        (Loss::CutOff, None) => unreachable!("it has an address of its own"),
    }
    group.until_promoted().await?;
    let promoted_at = Instant::now();
    for gateway in &gateways {
        until_followed(gateway, &group).await?;
    }
    let before: Vec<_> = progress
        .iter()
        .map(|calls| calls.load(Ordering::SeqCst))
        .collect();
    wait::until_true("more calls of every session", SETTLED_WITHIN, async || {
        let mut sessions = progress.iter().zip(&before).zip(&loads);
        Ok(sessions.all(|((calls, before), load)| {
            load.is_finished() || calls.load(Ordering::SeqCst) >= before + CALLS_AFTER
        }))
    })
    .await?;
    stop.store(true, Ordering::SeqCst);
    let mut all = Vec::new();
    for load in loads {
        all.push(load.await??);
    }
    let after = |seen: &Seen, from_memory: bool| {
        let good = seen
            .good
            .iter()
            .find(|(at, is_degraded)| *at > promoted_at && (from_memory || !is_degraded));
        good.map(|(at, _)| at.duration_since(promoted_at))
    };
    let pause = |seen: &Seen| {
        let times = seen.good.iter().map(|(at, _)| *at);
        let pairs = seen.good.iter().map(|(at, _)| *at).skip(1).zip(times);
        pairs.map(|(next, before)| next - before).max()
    };
    for seen in all.iter().filter(|seen| !seen.was_lost) {
        ensure!(after(seen, false).is_some(), "served again: {seen:?}");
    }
    println!(
        "{loss:?}: promoted after {:?}; next good reply after promotion: {:?} from the store, {:?} from anywhere, at most; \
         longest pause of a session {:?}; refused {}, counted without a reply {}, sessions lost {} of {}",
        promoted_at - lost_at,
        all.iter().filter_map(|seen| after(seen, false)).max(),
        all.iter().filter_map(|seen| after(seen, true)).max(),
        all.iter().filter_map(pause).max(),
        all.iter().map(|seen| seen.refused).sum::<u64>(),
        all.iter().map(|seen| seen.repeated).sum::<u64>(),
        all.iter().filter(|seen| seen.was_lost).count(),
        all.len(),
    );
    Ok(())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_killed_primary_under_load() -> anyhow::Result<()> {
    check(Loss::Killed).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_stopped_primary_under_load() -> anyhow::Result<()> {
    check(Loss::Stopped).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_primary_that_sentinels_cannot_reach_under_load() -> anyhow::Result<()> {
    check(Loss::CutOff).await
}
