//! Calls that last, wait for their client, or are cancelled, with a turn that was delegated.

use super::*;
use mooring_store::{LeaveRequest, LeaveTarget};

/// It was asked for as a delegation, whose lease is short, and became the call's own.
#[tokio::test]
async fn a_turn_with_a_short_lease_is_renewed_in_time() {
    let store = scene().await;
    let here = Gateway::new(&store, "w:1", Millis::new(500));
    let there = Gateway::new(&store, "v:1", LEASE);
    for id in ["1", "2"] {
        drop(here.take(id).await);
    }
    let held = here.take("3").await;
    let other = there.waits("other").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!other.is_finished() && !held.is_lost());
    drop(held);
    drop(comes(other).await);
    until_idle(&store).await;
}

/// A call that lasts longer than the lease.
#[tokio::test]
async fn a_call_that_lasts_keeps_the_turn_for_itself() {
    let store = scene().await;
    let here = Gateway::new(&store, "w:1", LEASE);
    let there = Gateway::new(&store, "v:1", LEASE);
    let long = here.until_delegated().await;
    assert!(long.permit().permit_sending());
    let other = there.waits("other").await;
    tokio::time::sleep(Duration::from_millis(LEASE.get() + 700)).await;
    assert!(!other.is_finished() && !long.is_lost());
    assert!(long.permit().permit_sending());
    drop(long);
    drop(comes(other).await);
    until_idle(&store).await;
}

#[tokio::test]
async fn a_call_that_waits_for_its_client_lets_others_run() {
    let store = scene().await;
    let here = Gateway::new(&store, "w:1", LEASE);
    let there = Gateway::new(&store, "v:1", LEASE);
    let asks = here.until_delegated().await;
    asks.release();
    assert!(!asks.permit().permit_sending());
    let other = there.take("other").await;
    asks.resume();
    drop(other);
    eventually("it has its turn again", async || {
        asks.permit().permit_sending()
    })
    .await;
    drop(asks);
    until_idle(&store).await;
}

#[tokio::test]
async fn a_cancelled_call_loses_its_turn_after_a_grace() {
    let store = scene().await;
    let here = Gateway::new(&store, "w:1", LEASE);
    let there = Gateway::new(&store, "v:1", LEASE);
    for is_kept in [false, true] {
        drop(here.until_delegated().await);
        let cancelled = here.take("7").await;
        if is_kept {
            let kept = async || {
                let kept = &here.router.delegations().kept;
                kept.get(&delegation_key()).is_some()
            };
            eventually("the call keeps its turn", kept).await;
        }
        let call = TurnTaker::new(Some("7".into()), &Arc::default()).call;
        let name = call.ticket(&delegation_key()).unwrap();
        let (name, _) = name.as_str().split_once('.').unwrap();
        let withdrawal = LeaveRequest {
            principal: make::principal("alice"),
            server: make::server("tools"),
            who: LeaveTarget::WaitingUnder(make::token(&format!("{name}."))),
        };
        store.leave(&key(), &withdrawal).await.unwrap_err();
        drop(there.take("other").await);
        assert!(cancelled.is_lost());
        drop(cancelled);
        drop(here.take("back").await);
    }
    until_idle(&store).await;
}
