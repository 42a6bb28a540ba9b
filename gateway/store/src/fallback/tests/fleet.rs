//! What is for a whole fleet, during an outage and after it: caps, the reaper, turns and news.

use std::num::NonZeroU64;
use std::time::Duration;

use mooring_session::refusal::{Busy, Refusal, Stale};
use mooring_session::rules::{ClaimRequest, CreateRequest, ForgetRequest};
use mooring_session::time::Millis;

use super::{bound, open, return_to_normal, until};
use crate::test_support::requests as make;
use crate::test_support::server::{Module, PATIENCE, RedisServer, eventually};
use crate::{
    EnterRequest, Family, LeaveRequest, LeaveTarget, Line, SessionQuery, Store, StoreError,
    StoreMode, TurnScope, WhenAway, WorkerEvent,
};

fn enter(ticket: &str, held: Option<u64>) -> EnterRequest {
    EnterRequest {
        principal: make::principal("alice"),
        server: make::server("tools"),
        worker: make::worker("w:1"),
        ticket: make::token(ticket),
        lease: Millis::new(2_000),
        line: Line::Last,
        scope: TurnScope::Call,
        held,
    }
}

fn withdraw(beginning: &str) -> LeaveRequest {
    LeaveRequest {
        principal: make::principal("alice"),
        server: make::server("tools"),
        who: LeaveTarget::WaitingUnder(make::token(beginning)),
    }
}

fn leave(ticket: &str) -> LeaveRequest {
    LeaveRequest {
        principal: make::principal("alice"),
        server: make::server("tools"),
        who: LeaveTarget::Ticket(make::token(ticket)),
    }
}

async fn wait_for_events(store: &Store) -> Vec<WorkerEvent> {
    store
        .wait_for_events(&make::worker("w:1"), PATIENCE)
        .await
        .unwrap()
}

#[tokio::test]
async fn nothing_is_listed_or_cleaned_without_redis() {
    let (mut server, store, _) = bound().await;
    let key = make::key("s");
    let ended = store.end(&key, &make::end()).await.unwrap();
    let minted = make::key("m");
    server.kill();
    store.create(&minted, &make::create("m")).await.unwrap();
    store.end(&minted, &make::end()).await.unwrap();
    let worker = make::worker("w:1");
    let clean = ClaimRequest {
        worker: worker.clone(),
        lease: Millis::new(1_000),
    };
    let forget = ForgetRequest {
        generation: ended.record.generation,
        worker: worker.clone(),
    };
    for key in [&key, &minted] {
        let claimed = store.claim(key, &clean).await;
        assert!(matches!(claimed, Err(StoreError::Away(_))), "{claimed:?}");
        let forgotten = store.forget(key, &forget).await;
        assert!(matches!(forgotten, Err(StoreError::Away(_))));
    }
    let named = store.reap(&worker, Family::Mcp, 10).await;
    assert!(matches!(named, Err(StoreError::Away(_))), "{named:?}");
    let listed = store.list(&SessionQuery::default()).await;
    assert!(matches!(listed, Err(StoreError::Away(_))), "{listed:?}");

    return_to_normal(&mut server, &store).await;
    store.forget(&key, &forget).await.unwrap();
    // Redis was never told of a session that began and ended while it was away.
    assert_eq!(
        store.get(&minted).await,
        Err(StoreError::Refused(Refusal::NoSession))
    );
    assert_eq!(store.reap(&worker, Family::Mcp, 10).await, Ok(Vec::new()));
}

#[tokio::test]
async fn no_cap_is_kept_without_redis_and_what_is_over_it_stays() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    let capped = |session: &str| CreateRequest {
        cap: NonZeroU64::new(1),
        ..make::create(session)
    };
    store.create(&make::key("a"), &capped("a")).await.unwrap();
    server.kill();
    store.create(&make::key("b"), &capped("b")).await.unwrap();
    return_to_normal(&mut server, &store).await;
    for session in ["a", "b"] {
        let found = store.create(&make::key(session), &capped(session)).await;
        assert!(!found.unwrap().created);
    }
    eventually("the cap is kept again", async || {
        let refused = store.create(&make::key("c"), &capped("c")).await;
        if refused.is_ok() {
            store.end(&make::key("c"), &make::end()).await.unwrap();
        }
        matches!(refused, Err(StoreError::Refused(Refusal::Cap { .. })))
    })
    .await;
}

#[tokio::test]
async fn a_worker_keeps_the_order_of_its_own_callers_without_redis() {
    let (mut server, store, _) = bound().await;
    let key = make::key("s");
    server.kill();
    let first = store.enter(&key, &enter("t1", None)).await.unwrap();
    assert!(first.turn.is_some() && first.routed.binding.is_some());
    for ticket in ["t2", "t3"] {
        let waiting = store.enter(&key, &enter(ticket, None)).await.unwrap();
        assert_eq!(waiting.turn, None);
    }
    let foreign = LeaveRequest {
        principal: make::principal("bob"),
        ..leave("t1")
    };
    assert_eq!(
        store.leave(&key, &foreign).await,
        Err(StoreError::Refused(Refusal::Denied))
    );
    // What has its turn is under way; what waits is taken out.
    assert_eq!(
        store.leave(&key, &withdraw("t1")).await,
        Err(StoreError::Refused(Refusal::Busy(Busy::Turn)))
    );
    let foreign = LeaveRequest {
        principal: make::principal("bob"),
        ..withdraw("t4")
    };
    store.enter(&key, &enter("t4", None)).await.unwrap();
    assert_eq!(
        store.leave(&key, &foreign).await,
        Err(StoreError::Refused(Refusal::Denied))
    );
    store.leave(&key, &withdraw("t4")).await.unwrap();
    let told = wait_for_events(&store).await;
    assert!(
        matches!(&told[..], [WorkerEvent::Withdrawn { ticket, .. }] if *ticket == make::token("t4")),
        "{told:?}"
    );
    store.leave(&key, &leave("t1")).await.unwrap();
    let told = wait_for_events(&store).await;
    let [WorkerEvent::Turn { ticket, turn, .. }] = told.as_slice() else {
        unreachable!("one turn is told: {told:?}");
    };
    assert_eq!(*ticket, make::token("t2"));

    return_to_normal(&mut server, &store).await;
    // The turns of before are over: who waited is told to ask again, and the holder says what it held.
    let told = wait_for_events(&store).await;
    assert!(
        matches!(told[..], [WorkerEvent::Settled { .. }]),
        "{told:?}"
    );
    assert_eq!(
        store.leave(&key, &leave("t3")).await,
        Err(StoreError::Refused(Refusal::Stale(Stale::Turn)))
    );
    let held = store.enter(&key, &enter("t2", Some(*turn))).await.unwrap();
    assert_eq!(held.turn, Some(*turn));
    let waiting = store.enter(&key, &enter("t3", None)).await.unwrap();
    assert_eq!(waiting.turn, None);
    // From now on it is Redis that takes out.
    assert_eq!(
        store.leave(&key, &withdraw("t2")).await,
        Err(StoreError::Refused(Refusal::Busy(Busy::Turn)))
    );
    store.enter(&key, &enter("t4", None)).await.unwrap();
    store.leave(&key, &withdraw("t4")).await.unwrap();
    let told = wait_for_events(&store).await;
    assert!(
        matches!(told[..], [WorkerEvent::Withdrawn { .. }]),
        "{told:?}"
    );
    store.leave(&key, &leave("t2")).await.unwrap();
    let told = wait_for_events(&store).await;
    assert!(matches!(told[..], [WorkerEvent::Turn { .. }]), "{told:?}");
}

#[tokio::test]
async fn whoever_waits_for_news_when_redis_goes_is_told_what_happens_without_it() {
    let (mut server, store, _) = bound().await;
    let key = make::key("s");
    let worker = make::worker("w:1");
    let outage = async {
        eventually("somebody waits", async || {
            let clients = server.command(&["INFO", "clients"]);
            let text = redis::from_redis_value::<String>(clients).unwrap();
            text.contains("blocked_clients:1")
        })
        .await;
        server.kill();
    };
    // The wait ends early, with or without an error, and the next one is served.
    let (ended, ()) = tokio::join!(store.wait_for_events(&worker, PATIENCE), outage);
    assert!(ended.is_err() || ended == Ok(Vec::new()), "{ended:?}");
    store.enter(&key, &enter("t1", None)).await.unwrap();
    store.enter(&key, &enter("t2", None)).await.unwrap();
    let first = leave("t1");
    let (told, left) = tokio::join!(wait_for_events(&store), store.leave(&key, &first));
    left.unwrap();
    assert!(matches!(told[..], [WorkerEvent::Turn { .. }]), "{told:?}");
}

#[tokio::test]
async fn a_rate_is_kept_by_each_worker_without_redis() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    let minute = Millis::new(60_000);
    assert!(store.rate("calls", 1, minute, 1).await.unwrap().allowed);
    assert!(!store.rate("calls", 1, minute, 1).await.unwrap().allowed);
    assert_eq!(store.take_once("state", minute).await, Ok(true));
    assert_eq!(store.take_once("state", minute).await, Ok(false));
    server.kill();
    // The first finds out that it is away, and the second knows.
    for name in ["state", "other"] {
        let taken = store.take_once(name, minute).await;
        assert!(matches!(taken, Err(StoreError::Away(_))), "{taken:?}");
    }
    assert!(store.rate("calls", 1, minute, 1).await.unwrap().allowed);
    assert!(!store.rate("calls", 1, minute, 1).await.unwrap().allowed);
    let worker = make::worker("w:1");
    let nothing = store
        .wait_for_events(&worker, Duration::from_millis(1))
        .await;
    assert_eq!(nothing, Ok(Vec::new()));
}

/// Some clients end their session at the first 503.
#[tokio::test]
async fn a_session_that_memory_does_not_know_waits_for_a_redis_that_returns_soon() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    let other = open(&server, WhenAway::Fail).await;
    let key = make::key("unread");
    other.create(&key, &make::create("unread")).await.unwrap();
    server.kill();
    let (route, enter) = (make::route(), enter("call", None));
    let returning = async {
        until(&store, StoreMode::Degraded).await;
        server.start_again();
    };
    let (routed, entered, ()) = tokio::join!(
        store.route(&key, &route),
        store.enter(&key, &enter),
        returning
    );
    assert!(routed.is_ok(), "{routed:?}");
    assert!(entered.is_ok(), "{entered:?}");

    // The address leads to a replica for a while.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let (key, create) = (make::key("new"), make::create("new"));
    let (created, ()) = tokio::join!(store.create(&key, &create), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.command(&["REPLICAOF", "NO", "ONE"]);
    });
    assert!(created.is_ok(), "{created:?}");
    assert_eq!(store.status().mode, StoreMode::Normal);
}

/// How many CREATEs the server has refused.
fn refused_creates(server: &RedisServer) -> u64 {
    let answer = server.command(&["INFO", "commandstats"]);
    let text = redis::from_redis_value::<String>(answer).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("cmdstat_session.create:"));
    let mut values = line.unwrap_or_default().split(',');
    let refused = values.find_map(|value| value.strip_prefix("rejected_calls="));
    refused.map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn a_server_that_stays_a_replica_is_waited_for_once() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let (key, create) = (make::key("new"), make::create("new"));
    let failed = |created: Result<_, StoreError>| {
        let error = created.map(drop).unwrap_err();
        assert!(error.to_string().contains("READONLY"), "{error}");
    };
    failed(store.create(&key, &create).await);
    let before = refused_creates(&server);
    assert!(before > 1, "the first one waits: {before}");
    for later in 1..4 {
        failed(store.create(&key, &create).await);
        assert_eq!(refused_creates(&server), before + later);
    }

    // After its return, the next failover is waited for again.
    server.command(&["REPLICAOF", "NO", "ONE"]);
    store.beat(&make::beat("w0", 60_000)).await.unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let (created, ()) = tokio::join!(store.create(&key, &create), async {
        eventually("it was refused", async || {
            refused_creates(&server) > before + 3
        })
        .await;
        server.command(&["REPLICAOF", "NO", "ONE"]);
    });
    assert!(created.is_ok(), "{created:?}");
}
