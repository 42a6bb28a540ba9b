//! SIGTERM of an owner: what it has begun it finishes, then its sessions go on at others, and nothing of it is left.

use std::time::Duration;

use mooring_tests::journal::Event;
use mooring_tests::session::{McpSession, read_exchange, result_of};
use rustix::process::{Pid, Signal, kill_process};

use crate::recovery::{call, count_of, mark_of, rebinds};

use super::rig::{OwnedFleet, assert_begun_anew, goes_on, slow};

const SLOW_MS: u64 = 1_200;
const BEGUN_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(20);

/// A call is under way through the worker that is told to stop, and one through another.
#[tokio::test]
async fn a_stopping_owner_finishes_its_calls_and_hands_its_sessions_over() -> anyhow::Result<()> {
    let mut fleet = OwnedFleet::start(3).await?;
    let (mut direct, mut forwarded) = (fleet.open_at(0).await?, fleet.open_at(0).await?);
    goes_on(&mut direct, 1, 3).await?;
    goes_on(&mut forwarded, 1, 3).await?;
    let old = fleet.children()?;
    assert_eq!(old.len(), 2);
    let mut at_owner = fleet.through(&direct, &[0]);
    let mut at_other = fleet.through(&forwarded, &[1]);
    let (first, second) = (
        at_owner.request_body("tools/call", slow(SLOW_MS, "direct")),
        at_other.request_body("tools/call", slow(SLOW_MS, "forwarded")),
    );
    let (first_reply, second_reply) = (at_owner.post(&first).await?, at_other.post(&second).await?);
    fleet
        .journal
        .wait_for(Event::Begin, 2, BEGUN_WITHIN)
        .await?;

    let id = i32::try_from(fleet.gateways[0].process().id())?;
    kill_process(Pid::from_raw(id).expect("an id"), Signal::TERM)?;
    // The next call of each comes while the one before it still runs.
    let mut next_direct = fleet.through(&direct, &[1, 2]);
    let mut next_forwarded = fleet.through(&forwarded, &[2, 1]);
    let next = tokio::spawn(async move {
        tokio::try_join!(
            until_moved(&mut next_direct),
            until_moved(&mut next_forwarded)
        )?;
        anyhow::Ok((next_direct, next_forwarded))
    });
    result_of(read_exchange(first_reply, &first).await?.response)?;
    result_of(read_exchange(second_reply, &second).await?.response)?;
    let (mut direct, mut forwarded) = next.await??;
    goes_on(&mut direct, 2, 3).await?;
    goes_on(&mut forwarded, 2, 3).await?;

    let status = fleet.gateways[0].process().ended(STOPPED_WITHIN).await?;
    assert_eq!(status.code(), Some(0), "{status}");
    let left = fleet.until_children(2).await?;
    assert!(left.is_disjoint(&old), "{left:?} {old:?}");
    fleet.gateways.remove(0);
    let moved =
        rebinds(&fleet.gateways, "drain").await? + rebinds(&fleet.gateways, "owner").await?;
    assert_eq!(moved, 2);
    Ok(())
}

/// Calls until one begins anew. Those that still reach the stopping worker go on where they were.
async fn until_moved(session: &mut McpSession) -> anyhow::Result<()> {
    for expected in 4.. {
        let exchange = call(session, "increment").await?;
        if mark_of(&exchange).is_some() {
            assert_begun_anew(&exchange);
            break;
        }
        assert_eq!(count_of(&exchange), Some(expected), "{exchange:?}");
    }
    Ok(())
}

/// Whoever comes to a stopping worker is refused, and a fleet goes on without it.
#[tokio::test]
async fn a_stopping_worker_takes_no_new_session_and_is_not_ready() -> anyhow::Result<()> {
    let mut fleet = OwnedFleet::start(2).await?;
    let session = fleet.open_at(0).await?;
    let mut at_other = fleet.through(&session, &[1]);
    let call = at_other.request_body("tools/call", slow(SLOW_MS, "held"));
    let reply = at_other.post(&call).await?;
    fleet
        .journal
        .wait_for(Event::Begin, 1, BEGUN_WITHIN)
        .await?;
    let id = i32::try_from(fleet.gateways[0].process().id())?;
    kill_process(Pid::from_raw(id).expect("an id"), Signal::TERM)?;
    mooring_tests::wait::until_true("no new session", BEGUN_WITHIN, async || {
        Ok(fleet
            .client
            .get(&fleet.gateways[0].url("/readyz"))
            .await
            .map_or(true, |reply| reply.status == 503))
    })
    .await?;
    // Its listener is closed, or it answers 503: no session begins there either way.
    let opened = McpSession::open(&fleet.client, &[fleet.endpoint(0)]).await;
    let error = format!("{:#}", opened.expect_err("no session begins there"));
    assert!(
        error.contains("503") || error.contains("connect"),
        "{error}"
    );
    let mut elsewhere = McpSession::open(&fleet.client, &[fleet.endpoint(1)]).await?;
    goes_on(&mut elsewhere, 1, 2).await?;
    result_of(read_exchange(reply, &call).await?.response)?;
    let status = fleet.gateways[0].process().ended(STOPPED_WITHIN).await?;
    assert_eq!(status.code(), Some(0), "{status}");
    Ok(())
}
