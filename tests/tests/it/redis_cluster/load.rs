//! A cluster under load while slots move, a node is added and a primary is killed: no session is lost, counts only grow,
//! and all that is listed and reaped is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mooring_tests::client::HttpClient;
use mooring_tests::redis_cluster::RANGES;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use super::{ClusterFleet, SETTLED_WITHIN};
use crate::sentinels::failovers::load;

const SESSIONS: usize = 9;
/// Calls of each session after each change.
const CALLS_AFTER: u64 = 5;
/// Far above what a request may take, so that one that hangs fails the test.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Waits until every session has made some more calls.
async fn until_all_go_on(progress: &[Arc<AtomicU64>]) -> anyhow::Result<()> {
    let now = |calls: &Arc<AtomicU64>| calls.load(Ordering::SeqCst);
    let before: Vec<u64> = progress.iter().map(now).collect();
    wait::until_true("more calls of every session", SETTLED_WITHIN, async || {
        let mut pairs = progress.iter().zip(&before);
        Ok(pairs.all(|(calls, before)| now(calls) >= before + CALLS_AFTER))
    })
    .await
}

#[tokio::test]
#[ignore = "soak"]
#[allow(clippy::print_stdout, reason = "the times are what the test is for")]
async fn soak_cluster_under_load() -> anyhow::Result<()> {
    let mut fleet = ClusterFleet::start().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let (mut loads, mut progress, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    let client = HttpClient::new(ANSWERED_WITHIN);
    for number in 0..SESSIONS {
        let session = fleet.session("tools").await?;
        let endpoint = [fleet.gateways[number % fleet.gateways.len()].mcp_url("tools")];
        let calls = Arc::new(AtomicU64::new(0));
        let used = session.fork(&client, &endpoint);
        loads.push(tokio::spawn(load(
            used,
            Arc::clone(&calls),
            Arc::clone(&stop),
        )));
        progress.push(calls);
        idle.push(session);
    }
    until_all_go_on(&progress).await?;

    let slots: Vec<(u16, usize)> = (idle.iter())
        .map(|session| fleet.slot_of(session))
        .collect::<Result<_, _>>()?;
    for &(slot, from) in &slots {
        fleet
            .cluster
            .move_slot(slot, from, (from + 1) % RANGES.len())?;
    }
    until_all_go_on(&progress).await?;
    for &(slot, from) in &slots {
        fleet
            .cluster
            .move_slot(slot, (from + 1) % RANGES.len(), from)?;
    }
    let added = fleet.cluster.add_primary().await?;
    let (slot, from) = slots[0];
    fleet.cluster.move_slot(slot, from, added)?;
    until_all_go_on(&progress).await?;

    // What its replica has is not lost.
    let killed = 1;
    fleet.cluster.until_replicated(killed).await?;
    let killed_at = Instant::now();
    fleet.cluster.fail_over(killed).await?;
    let promoted_after = killed_at.elapsed();
    until_all_go_on(&progress).await?;
    println!(
        "promoted after {promoted_after:?}, all sessions served after {:?}",
        killed_at.elapsed()
    );

    stop.store(true, Ordering::SeqCst);
    let mut refused = 0;
    for load in loads {
        let seen = load.await??;
        assert!(!seen.was_lost, "{seen:?}");
        refused += seen.refused;
    }
    println!("refused while the primary was replaced: {refused}");
    assert_eq!(fleet.stored()?, SESSIONS);
    fleet.until_all_listed().await?;
    end_all(idle).await?;
    wait::until_true(
        "all upstream sessions to be deleted",
        SETTLED_WITHIN,
        async || Ok(fleet.fixture.stats().await?.sessions_live == 0),
    )
    .await
}

async fn end_all(sessions: Vec<McpSession>) -> anyhow::Result<()> {
    for mut session in sessions {
        let ended = session.delete().await?;
        assert!(ended.status.is_success(), "{}", ended.status);
    }
    Ok(())
}
