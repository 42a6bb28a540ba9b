//! Turns and news, the same over every store.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use mooring_session::refusal::{Busy, Refusal, Stale};
use mooring_session::rules::{EndCondition, EndRequest};
use mooring_session::time::Millis;

use futures_util::FutureExt;

use super::every_store::over_every_store;
use crate::test_support::requests as make;
use crate::test_support::server::{PATIENCE, eventually};
use crate::test_support::{enter, leave, turns_are_given};
use crate::{EnterRequest, LeaveRequest, LeaveTarget, Store, StoreError, TurnScope, WorkerEvent};

/// Lapses soon, but not before the next question of a busy machine.
const SHORT_LEASE: Millis = Millis::new(1_000);

over_every_store! {
    turns_are_given_in_order_and_told_to_who_waits;
    an_ended_turn_is_free_for_the_next_command;
    a_turn_passes_on_when_its_holder_dies_or_stops;
    who_waits_is_withdrawn_by_what_its_ticket_begins_with_and_told;
    who_waits_for_a_claim_is_told_when_it_settles;
    a_turn_is_delegated_until_another_caller_waits;
    a_route_is_delegated_and_a_change_is_told;
}

fn withdraw(beginning: &str) -> LeaveRequest {
    LeaveRequest {
        principal: make::principal("alice"),
        server: make::server("tools"),
        who: LeaveTarget::WaitingUnder(make::token(beginning)),
    }
}

async fn wait_for_events(store: &Store, worker: &str) -> Vec<WorkerEvent> {
    store
        .wait_for_events(&make::worker(worker), PATIENCE)
        .await
        .unwrap()
}

async fn turns_are_given_in_order_and_told_to_who_waits(store: &Store) {
    turns_are_given(store).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    let first = store.enter(&key, &enter("w:1", "t1")).await.unwrap();
    let number = first.turn.unwrap();
    assert_eq!(first.routed.binding, None);
    // The same ticket again has the same turn.
    let again = store.enter(&key, &enter("w:1", "t1")).await.unwrap();
    assert_eq!(again.turn, Some(number));
    for ticket in ["t2", "t3"] {
        let waiting = store.enter(&key, &enter("v:1", ticket)).await.unwrap();
        assert_eq!(waiting.turn, None);
    }
    assert_eq!(
        store
            .end(
                &key,
                &EndRequest {
                    when: EndCondition::Idle,
                    ..make::end()
                }
            )
            .await,
        Err(StoreError::Refused(Refusal::Busy(Busy::Turn)))
    );
    let mut last = number;
    for (left, next) in [("t1", "t2"), ("t2", "t3")] {
        store.leave(&key, &leave(left)).await.unwrap();
        let told = wait_for_events(store, "v:1").await;
        let [
            WorkerEvent::Turn {
                key: of,
                server,
                ticket,
                turn,
            },
        ] = told.as_slice()
        else {
            unreachable!("one turn is told: {told:?}");
        };
        assert_eq!((of, server), (&key, &make::server("tools")));
        assert_eq!(*ticket, make::token(next));
        assert!(*turn > last, "{turn} follows {last}");
        last = *turn;
    }
    assert_eq!(
        store.leave(&key, &leave("t1")).await,
        Err(StoreError::Refused(Refusal::Stale(Stale::Turn)))
    );
    let foreign = LeaveRequest {
        principal: make::principal("bob"),
        ..leave("t3")
    };
    assert_eq!(
        store.leave(&key, &foreign).await,
        Err(StoreError::Refused(Refusal::Denied))
    );
    store.leave(&key, &leave("t3")).await.unwrap();
}

async fn an_ended_turn_is_free_for_the_next_command(store: &Store) {
    turns_are_given(store).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    for round in 0..20 {
        let ticket = format!("t{round}");
        let entered = store.enter(&key, &enter("w:1", &ticket)).await.unwrap();
        assert!(entered.turn.is_some(), "{ticket}");
        store.end_turn(&key, leave(&ticket));
        // There is nothing to end any more.
        store.end_turn(&key, leave(&ticket));
    }
    // One that waits for it is told.
    store.enter(&key, &enter("w:1", "held")).await.unwrap();
    let waiting = store.enter(&key, &enter("v:1", "next")).await.unwrap();
    assert_eq!(waiting.turn, None);
    store.end_turn(&key, leave("held"));
    let told = wait_for_events(store, "v:1").await;
    assert!(
        matches!(&told[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("next")),
        "{told:?}"
    );
    store.end_turn(&key, leave("next"));
}

async fn a_turn_passes_on_when_its_holder_dies_or_stops(store: &Store) {
    turns_are_given(store).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    for worker in ["w:1", "v:1"] {
        store.beat(&make::beat(worker, 600_000)).await.unwrap();
    }
    store.enter(&key, &enter("w:1", "t1")).await.unwrap();
    store.enter(&key, &enter("v:1", "t2")).await.unwrap();
    store.gone(&make::worker("w:1")).await.unwrap();
    let told = wait_for_events(store, "v:1").await;
    assert!(
        matches!(&told[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("t2")),
        "{told:?}"
    );
    assert_eq!(
        store.enter(&key, &enter("w:1", "t1")).await,
        Err(StoreError::Refused(Refusal::Stale(Stale::Worker)))
    );
    store.leave(&key, &leave("t2")).await.unwrap();
    // A holder that does not renew loses it to the next, who has to ask before that.
    let short = EnterRequest {
        lease: SHORT_LEASE,
        ..enter("v:1", "t3")
    };
    store.enter(&key, &short).await.unwrap();
    let next = store.enter(&key, &enter("v:1", "t4")).await.unwrap();
    assert_eq!(next.turn, None);
    let told = wait_for_events(store, "v:1").await;
    assert!(
        matches!(&told[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("t4")),
        "{told:?}"
    );
    assert_eq!(
        store.leave(&key, &leave("t3")).await,
        Err(StoreError::Refused(Refusal::Stale(Stale::Turn)))
    );
    // So does one that began while the next was waited for already.
    let short = enter("v:1", "t4");
    let short = EnterRequest {
        lease: SHORT_LEASE,
        ..short
    };
    store.leave(&key, &leave("t4")).await.unwrap();
    let holder = make::worker("v:1");
    let asked = async {
        store.enter(&key, &short).await.unwrap();
        store.enter(&key, &enter("v:1", "t6")).await.unwrap();
    };
    let (told, ()) = tokio::join!(store.wait_for_events(&holder, PATIENCE), asked);
    let told = told.unwrap();
    assert!(
        matches!(&told[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("t6")),
        "{told:?}"
    );
    // A session that ends takes its queues with it, and tells who waited.
    store.enter(&key, &enter("v:1", "t5")).await.unwrap();
    store.end(&key, &make::end()).await.unwrap();
    let told = wait_for_events(store, "v:1").await;
    assert!(
        matches!(&told[..], [WorkerEvent::Settled { .. }]),
        "{told:?}"
    );
}

async fn who_waits_is_withdrawn_by_what_its_ticket_begins_with_and_told(store: &Store) {
    turns_are_given(store).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    let refused = |refusal| Err(StoreError::Refused(refusal));
    for (worker, ticket) in [("w:1", "a.1"), ("v:1", "b.1"), ("w:1", "c.1")] {
        store.enter(&key, &enter(worker, ticket)).await.unwrap();
    }
    for (request, expected) in [
        (withdraw("a."), refused(Refusal::Busy(Busy::Turn))),
        (withdraw("d."), refused(Refusal::Stale(Stale::Turn))),
        (
            LeaveRequest {
                principal: make::principal("bob"),
                ..withdraw("b.")
            },
            refused(Refusal::Denied),
        ),
        (withdraw("b."), Ok(())),
        (withdraw("b."), refused(Refusal::Stale(Stale::Turn))),
    ] {
        assert_eq!(store.leave(&key, &request).await, expected, "{request:?}");
    }
    let withdrawn = WorkerEvent::Withdrawn {
        key: key.clone(),
        server: make::server("tools"),
        ticket: make::token("b.1"),
    };
    assert_eq!(wait_for_events(store, "v:1").await, [withdrawn]);
    // On a busy machine its turn has ended by itself, a second after it was cancelled.
    let _ = store.leave(&key, &leave("a.1")).await;
    let told = wait_for_events(store, "w:1").await;
    assert!(
        matches!(&told[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("c.1")),
        "{told:?}"
    );
    // With the session, what there was to withdraw is gone.
    store.end(&key, &make::end()).await.unwrap();
    assert_eq!(
        store.leave(&key, &withdraw("c.")).await,
        refused(Refusal::Ended)
    );
}

async fn who_waits_for_a_claim_is_told_when_it_settles(store: &Store) {
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    let mut claim = make::bind("t1", "i1", "-");
    claim.upstream_session = None;
    let claimed = store.bind(&key, &claim).await.unwrap();
    let mut route = make::route();
    route.worker = make::worker("v:1");
    store.route(&key, &route).await.unwrap();
    let nothing = store
        .wait_for_events(&route.worker, Duration::from_millis(1))
        .await;
    assert_eq!(nothing, Ok(Vec::new()));
    // A caller that waits and goes away costs the next one nothing.
    let waits = store.wait_for_events(&route.worker, PATIENCE);
    tokio::select! {
        biased;
        told = waits => unreachable!("nothing has settled: {told:?}"),
        () = tokio::task::yield_now() => {}
    }
    let confirm = make::confirm(claimed.binding.epoch, "t1", "u1");
    store.confirm(&key, &confirm).await.unwrap();
    let settled = WorkerEvent::Settled {
        key,
        server: make::server("tools"),
    };
    assert_eq!(wait_for_events(store, "v:1").await, [settled]);
}

async fn a_turn_is_delegated_until_another_caller_waits(store: &Store) {
    turns_are_given(store).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    (store.bind(&key, &make::bind("t", "i", "u")).await).unwrap();
    let wishing = |ticket: &str| EnterRequest {
        scope: TurnScope::Delegation,
        ..enter("w:1", ticket)
    };
    let first = store.enter(&key, &wishing("first")).await.unwrap();
    assert_eq!(first.delegated_for, None, "it may be the only one");
    store.leave(&key, &leave("first")).await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move {
            loop {
                let events = wait_for_events(&store, "w:1").await;
                if !events.is_empty() {
                    return events;
                }
            }
        })
    };
    let mut held = String::new();
    eventually("the turn is delegated", async || {
        held.push('t');
        let entered = store.enter(&key, &wishing(&held)).await.unwrap();
        let is_delegated = entered.delegated_for == Some(wishing(&held).lease);
        if !is_delegated {
            store.leave(&key, &leave(&held)).await.unwrap();
        }
        is_delegated
    })
    .await;
    let renewed = store.enter(&key, &wishing(&held)).await.unwrap();
    assert!(renewed.turn.is_some() && renewed.delegated_for.is_some());

    let other = store.enter(&key, &enter("v:1", "other")).await.unwrap();
    assert_eq!(other.turn, None);
    let recall = WorkerEvent::Settled {
        key: key.clone(),
        server: make::server("tools"),
    };
    assert_eq!(waiting.await.unwrap(), [recall]);
    let kept = store.enter(&key, &wishing(&held)).await.unwrap();
    assert_eq!((kept.turn, kept.delegated_for), (renewed.turn, None));
    store.leave(&key, &leave(&held)).await.unwrap();
    let told = wait_for_events(store, "v:1").await;
    assert!(
        matches!(&told[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("other")),
        "{told:?}"
    );
}

async fn a_route_is_delegated_and_a_change_is_told(store: &Store) {
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    let lease = Millis::new(1_800);
    let unbound = store.delegate_route(&key, &make::route(), lease).await;
    assert_eq!(unbound.unwrap().routed.binding, None);
    let bound = (store.bind(&key, &make::bind("t", "i", "u")).await).unwrap();
    let mut told = {
        let store = store.clone();
        tokio::spawn(async move {
            loop {
                let events = wait_for_events(&store, "w:1").await;
                if !events.is_empty() {
                    return events;
                }
            }
        })
    };
    let request = make::route();
    let routed = || store.delegate_route(&key, &request, lease);
    // The second reply does not repeat the binding.
    for _ in 0..2 {
        eventually("the route is delegated", async || {
            let delegated = routed().await.unwrap();
            assert_eq!(
                delegated.routed.binding.unwrap().instance,
                make::instance("i")
            );
            delegated.delegated_for == Some(lease)
        })
        .await;
    }
    let settled = WorkerEvent::Settled {
        key: key.clone(),
        server: make::server("tools"),
    };
    let moved = make::rebind(bound.binding.epoch, "t2", "j");
    eventually("the worker is told", async || {
        // It may have been told of the first binding, or that an earlier delegation has lapsed.
        drop(routed().await);
        drop(store.rebind(&key, &moved).await);
        (&mut told)
            .now_or_never()
            .is_some_and(|events| events.unwrap() == [settled.clone()])
    })
    .await;
}
