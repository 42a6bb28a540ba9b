//! Redis goes away and returns under load: no request is lost track of, and every session counts on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use tokio::sync::watch;

use crate::recovery::{attempt, binding, count_of, mark_of, rebinds};
use crate::store_away::{Outage, until_all};

const SESSIONS: usize = 6;
/// Far above what a request may take, so that one that hangs fails the test instead of stopping it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// Requests of each session in each phase of the outage.
const REQUESTS_PER_PHASE: u64 = 30;

/// What one session saw.
#[derive(Debug, Default)]
struct Seen {
    counted: u64,
    degraded: u64,
    refused: u64,
    slowest: Duration,
}

/// Calls `increment` until it is asked to stop; every answer is checked as it comes.
async fn load(
    mut session: McpSession,
    stop: Arc<AtomicBool>,
    progress: watch::Sender<u64>,
) -> anyhow::Result<(McpSession, Seen)> {
    let mut seen = Seen::default();
    while !stop.load(Ordering::SeqCst) {
        let began = Instant::now();
        let answered = attempt(&mut session, "increment").await?;
        seen.slowest = seen.slowest.max(began.elapsed());
        progress.send_modify(|requests| *requests += 1);
        if answered.status == 503 {
            answered.assert_try_again();
            seen.refused += 1;
            continue;
        }
        assert_eq!(answered.status, 200, "{answered:?}");
        seen.degraded += u64::from(answered.is_degraded);
        let exchange = answered.exchange.context("a reply")?;
        seen.counted += 1;
        assert_eq!(count_of(&exchange), Some(seen.counted), "{exchange:?}");
        assert_eq!(mark_of(&exchange), None);
    }
    Ok((session, seen))
}

/// Waits until every session has made some more requests.
async fn some_more(progress: &[watch::Receiver<u64>]) -> anyhow::Result<()> {
    for session in progress {
        let target = *session.borrow() + REQUESTS_PER_PHASE;
        wait::until_true(
            "more requests to be answered",
            Duration::from_secs(60),
            async || Ok(*session.borrow() >= target || session.has_changed().is_err()),
        )
        .await?;
    }
    Ok(())
}

/// Starts the load, lets `disturb` do its worst, and checks every session at the end; the sum of what they saw.
async fn under_load(
    disturb: impl AsyncFnOnce(&mut Fleet, &[watch::Receiver<u64>]) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Seen>> {
    let fixture = Fixture::start("one").await?;
    let mut fleet = Fleet::start(3, &[fixture.url()]).await?;
    let client = HttpClient::new(ANSWERED_WITHIN);
    let stop = Arc::new(AtomicBool::new(false));
    let (mut loads, mut progress) = (Vec::new(), Vec::new());
    for _ in 0..SESSIONS {
        let session = McpSession::open(&client, &fleet.endpoints()).await?;
        let (sender, receiver) = watch::channel(0);
        progress.push(receiver);
        loads.push(tokio::spawn(load(session, Arc::clone(&stop), sender)));
    }
    some_more(&progress).await?;
    disturb(&mut fleet, &progress).await?;
    some_more(&progress).await?;
    stop.store(true, Ordering::SeqCst);

    let mut all = Vec::new();
    for load in loads {
        let (mut session, mut seen) = load.await??;
        seen.counted += 1;
        assert_eq!(session.increment().await?, seen.counted);
        assert_eq!(binding(&fleet.redis, &session)?["rebinds"], 0);
        all.push(seen);
    }
    let stats = fixture.stats().await?;
    let counted: u64 = all.iter().map(|seen| seen.counted).sum();
    assert_eq!(stats.calls_of("increment"), counted, "each call ran once");
    assert_eq!(usize::try_from(stats.initializes)?, SESSIONS);
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);
    for gateway in &mut fleet.gateways {
        assert_eq!(
            gateway.process().exit_status()?,
            None,
            "no gateway has ended"
        );
    }
    Ok(all)
}

async fn check_outage(outage: Outage) -> anyhow::Result<()> {
    let all = under_load(async |fleet, progress| {
        outage.begin(&mut fleet.redis)?;
        until_all(&fleet.gateways, "degraded").await?;
        some_more(progress).await?;
        outage.end(&mut fleet.redis).await?;
        until_all(&fleet.gateways, "ok").await
    })
    .await?;
    for seen in &all {
        assert!(
            seen.degraded > 0,
            "a session that was in use is served all along: {seen:?}"
        );
    }
    report(&format!("{outage:?}"), &all);
    Ok(())
}

/// Figures for whoever runs the test with `--nocapture`.
#[expect(clippy::print_stderr, reason = "a figure is not an assertion")]
fn report(what: &str, all: &[Seen]) {
    let sum = |figure: fn(&Seen) -> u64| all.iter().map(figure).sum::<u64>();
    eprintln!(
        "{what}: {} answered, {} of them degraded, {} refused; slowest {:?}",
        sum(|seen| seen.counted),
        sum(|seen| seen.degraded),
        sum(|seen| seen.refused),
        all.iter()
            .map(|seen| seen.slowest)
            .max()
            .unwrap_or_default(),
    );
}

#[tokio::test]
async fn redis_is_killed_and_started_under_load() -> anyhow::Result<()> {
    check_outage(Outage::Killed).await
}

#[tokio::test]
async fn redis_hangs_and_goes_on_under_load() -> anyhow::Result<()> {
    check_outage(Outage::Hanging).await
}

/// How often the connections are cut.
const CUTS: usize = 20;

#[tokio::test]
async fn connections_to_redis_are_cut_under_load() -> anyhow::Result<()> {
    let all = under_load(async |fleet, _| {
        for _ in 0..CUTS {
            fleet
                .redis
                .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
        }
        until_all(&fleet.gateways, "ok").await
    })
    .await?;
    report("cut", &all);
    Ok(())
}
