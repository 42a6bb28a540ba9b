//! Calls with delegated turns over a store in memory, whose rules are those of the module. [`lasting`]: calls that keep the
//! turn; [`routes`]: messages that need none.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod lasting;
mod routes;

use std::time::Duration;

use mooring_delivery::UNUSED_MAX;
use mooring_session::Refusal;
use mooring_session::rules::{BindRequest, EndCondition, EndRequest};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::held_turns::TurnTaker;
use super::*;
use crate::affinity::Turn;
use crate::affinity::test_router::test_router;
use crate::affinity::{Session, SessionRouter, wake_waiters};
use mooring_store::test_support::requests as make;
use mooring_store::test_support::server::{Module, PATIENCE, RedisServer, eventually};
use mooring_store::test_support::{memory_store, redis_store, turns_are_given};
use mooring_store::{SessionKey, Store, StoreError, TurnError};

const LEASE: Millis = Millis::new(1_800);
/// Short enough that nothing else happens.
const SHORT: Duration = Duration::from_millis(20);

/// Before a call keeps its turn because it lasts.
const WELL_BEFORE_ITS_TASK: Duration = Duration::from_millis(300);

/// A gateway with the task of its wake-ups.
struct Gateway {
    router: SessionRouter,
    session: Session,
    wake_ups: JoinHandle<()>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.wake_ups.abort();
    }
}

type Taken = Result<(Turn, RouteReply), TurnError>;

impl Gateway {
    fn new(store: &Store, worker: &str, lease: Millis) -> Self {
        let create = make::create("s");
        let session = Session::new(key(), create.id, create.principal);
        let router = test_router(store, &make::worker(worker), lease);
        Self {
            wake_ups: tokio::spawn(wake_waiters(router.clone())),
            router,
            session,
        }
    }

    async fn try_take(&self, id: &str) -> Taken {
        let call = TurnTaker::new(Some(id.into()), self.router.held_turns());
        let server = make::server("tools");
        (self.router)
            .take_turn_of(&call, &self.session, &server, PATIENCE)
            .await
    }

    /// Takes the turn of a call, which is bound.
    async fn take(&self, id: &str) -> Turn {
        let (turn, routed) = self.try_take(id).await.unwrap();
        assert_eq!(routed.binding.unwrap().instance, make::instance("i"));
        turn
    }

    /// Makes calls until one has the number of the one before: no other turn came between. Returns the last one.
    async fn until_delegated(&self) -> Turn {
        let mut before = None;
        let mut last = None;
        eventually("a turn is delegated", async || {
            drop(last.take());
            let turn = self.take("0").await;
            let is_same = before == turn.number();
            before = turn.number();
            last = Some(turn);
            is_same
        })
        .await;
        last.unwrap()
    }

    /// A call that waits: its ENTER precedes every later command.
    async fn waits(&self, id: &str) -> JoinHandle<Taken> {
        let (router, session) = (self.router.clone(), self.session.clone());
        let call = TurnTaker::new(Some(id.into()), self.router.held_turns());
        let mut taking = Box::pin(async move {
            let server = make::server("tools");
            router
                .take_turn_of(&call, &session, &server, PATIENCE)
                .await
        });
        tokio::select! {
            biased;
            came = &mut taking => panic!("the turn is free: {came:?}"),
            () = tokio::task::yield_now() => {}
        }
        tokio::spawn(taking)
    }
}

fn key() -> SessionKey {
    make::key("s")
}

async fn comes(call: JoinHandle<Taken>) -> Turn {
    let came = tokio::time::timeout(PATIENCE, call).await;
    came.expect("it has its turn in time").unwrap().unwrap().0
}

/// A session that is bound, driven by `w:1`.
async fn scene() -> Store {
    let store = memory_store();
    begin_session(&store).await;
    store
}

async fn begin_session(store: &Store) {
    store.create(&key(), &make::create("s")).await.unwrap();
    let bind = BindRequest {
        worker: make::worker("w:1"),
        ..make::bind("t", "i", "u")
    };
    store.bind(&key(), &bind).await.unwrap();
}

/// Nobody has the turn or waits for it.
async fn is_idle(store: &Store) -> bool {
    let end = EndRequest {
        when: EndCondition::Idle,
        ..make::end()
    };
    store.end(&key(), &end).await.is_ok()
}

async fn until_idle(store: &Store) {
    eventually("no call has the turn or waits for it", async || {
        is_idle(store).await
    })
    .await;
}

#[tokio::test]
async fn calls_in_a_row_share_one_turn_of_the_store() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    let number = gateway.until_delegated().await.number();
    for id in ["1", "2", "3"] {
        let turn = gateway.take(id).await;
        assert_eq!(turn.number(), number);
        assert!(turn.permit().permit_sending());
    }
    // It is given back when no call uses it.
    until_idle(&store).await;
}

#[tokio::test]
async fn with_a_lease_of_zero_every_call_has_a_turn_of_its_own() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", Millis::new(0));
    let mut last = gateway.take("0").await.number();
    for _ in 0..10 {
        let next = gateway.take("1").await.number();
        assert!(next > last, "{next:?} after {last:?}");
        last = next;
        assert!(gateway.router.delegations().is_empty());
    }
}

/// The first gateway's client sends one call after another, without a pause.
#[tokio::test]
async fn a_call_at_another_gateway_is_next_after_the_current_one() {
    let store = scene().await;
    let here = Gateway::new(&store, "w:1", LEASE);
    let there = Gateway::new(&store, "v:1", LEASE);
    for round in 0..3 {
        let current = here.until_delegated().await;
        let other = there.waits("other").await;
        drop(current);
        // It may come before the recall does.
        let burst = tokio::spawn({
            let (router, session) = (here.router.clone(), here.session.clone());
            async move {
                let mut calls = 0_u32;
                loop {
                    let call = TurnTaker::new(Some("burst".into()), router.held_turns());
                    let server = make::server("tools");
                    let taken = router.take_turn_of(&call, &session, &server, PATIENCE);
                    drop(taken.await.unwrap());
                    calls += 1;
                    tokio::task::yield_now().await;
                    assert!(calls < 10_000, "the burst goes on without end");
                }
            }
        });
        let other = comes(other).await;
        assert!(!burst.is_finished(), "round {round}");
        drop(other);
        burst.abort();
        drop(burst.await);
        // The driver of the binding is the gateway whose call was routed last.
        drop(here.take("back").await);
    }
    until_idle(&store).await;
}

#[tokio::test(start_paused = true)]
async fn an_unused_delegation_is_recalled_at_once() {
    let store = scene().await;
    let here = Gateway::new(&store, "w:1", LEASE);
    let there = Gateway::new(&store, "v:1", LEASE);
    drop(here.until_delegated().await);
    let asked = Instant::now();
    drop(there.take("other").await);
    assert!(
        asked.elapsed() < UNUSED_MAX,
        "it was swept out, not recalled"
    );
    until_idle(&store).await;
}

#[tokio::test]
async fn a_second_call_at_the_same_gateway_waits_for_the_first() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    let first = gateway.until_delegated().await;
    let second = gateway.waits("2").await;
    tokio::time::sleep(SHORT).await;
    assert!(!second.is_finished());
    let number = first.number();
    drop(first);
    let second = comes(second).await;
    assert!(second.number() > number);
    drop(second);
    until_idle(&store).await;
}

#[tokio::test]
async fn the_end_of_the_session_takes_effect_on_the_next_call() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    drop(gateway.until_delegated().await);
    // As by another gateway or an operator.
    store.end(&key(), &make::end()).await.unwrap();
    eventually("the next call is refused", async || {
        let refused = gateway.try_take("next").await;
        matches!(
            refused,
            Err(TurnError::Store(StoreError::Refused(Refusal::Ended)))
        )
    })
    .await;
}

#[tokio::test]
async fn another_principal_is_asked_for_by_the_store() {
    let store = scene().await;
    let mut gateway = Gateway::new(&store, "w:1", LEASE);
    drop(gateway.until_delegated().await);
    gateway.session.principal = make::principal("bob");
    let refused = gateway.try_take("1").await.unwrap_err();
    assert_eq!(
        refused,
        TurnError::Store(StoreError::Refused(Refusal::Denied))
    );
}

fn delegation_key() -> DelegationKey {
    (key(), make::server("tools"))
}

#[tokio::test(start_paused = true)]
async fn without_wake_ups_a_running_call_keeps_its_turn_and_no_other_uses_it() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    let running = gateway.until_delegated().await;
    gateway.wake_ups.abort();
    let lost = Instant::now();
    eventually("the call has its turn for itself", async || {
        gateway.router.delegations().is_empty()
    })
    .await;
    assert!(lost.elapsed() < WELL_BEFORE_ITS_TASK);
    assert!(running.permit().permit_sending());
    let number = running.number();
    drop(running);
    for id in ["1", "2", "3", "4"] {
        assert!(gateway.take(id).await.number() > number);
    }
    until_idle(&store).await;
}

#[tokio::test]
async fn a_gateway_that_stops_leaves_its_turns() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    drop(gateway.until_delegated().await);
    gateway.router.stop_delegations();
    assert!(is_idle(&store).await);
    assert!(gateway.router.delegations().is_empty());
}

/// While Redis is asked to renew the delegation.
#[tokio::test]
async fn a_dropped_call_leaves_nothing_in_use() {
    let server = RedisServer::start(Module::Loaded);
    let store = redis_store(&server).await;
    turns_are_given(&store).await;
    begin_session(&store).await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    for moments in 0..20 {
        drop(gateway.until_delegated().await);
        let table = gateway.router.delegations();
        // Not seen for long, so the next call asks.
        table.wake_ups_seen.take();
        tokio::select! {
            biased;
            _ = gateway.try_take("dropped") => {}
            () = yields(moments) => {}
        }
        let running = {
            let shard = table.shard(&delegation_key());
            shard.delegations.running(&delegation_key()).is_some()
        };
        assert!(!running, "{moments}");
        drop(gateway.take("next").await);
    }
    until_idle(&store).await;
}

async fn yields(moments: usize) {
    for _ in 0..moments {
        tokio::task::yield_now().await;
    }
}
