//! Turns over every kind of store: in order, one at a time, released however their callers end, and held across a
//! restart of Redis. [`calls`] tests the messages of calls, [`passing`] released turns, [`withdrawing`] withdrawn calls, [`drops`] callers that are
//! dropped at any time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod calls;
mod drops;
mod passing;
mod withdrawing;

use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::WorkerId;
use mooring_session::refusal::Stale;
use mooring_session::rules::{BindRequest, EndCondition};
use tokio::task::{JoinHandle, JoinSet};

use super::keeper::RENEW_EVERY;
use super::*;
use crate::affinity::events::serve_events;
use crate::affinity::wake_ups::Waiters;
use mooring_store::test_support::requests as make;
use mooring_store::test_support::server::{Module, PATIENCE, RedisServer, eventually, redis_url};
use mooring_store::test_support::{embedded_store, memory_store, redis_store, turns_are_given};
use mooring_store::{StoreOptions, StorePlace, TurnHolder, WhenAway, open_with};

const SHORT: Duration = Duration::from_millis(50);
/// The TTL of sessions.
const TTL: Millis = Millis::new(60_000);
/// The shortest time to live of a beat.
const SHORT_TTL_MS: u64 = mooring_session::limits::BEAT_TTL_MIN.get();

/// A gateway: its waiting calls, and the task that wakes them.
struct Worker {
    store: Store,
    id: WorkerId,
    waiters: Waiters,
    wake_ups: JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.wake_ups.abort();
    }
}

impl Worker {
    fn new(store: &Store, name: &str) -> Self {
        let (id, waiters) = (make::worker(name), Waiters::default());
        let wake_ups = {
            let delegations = DelegationTable::new(Millis::from(LEASE), TTL);
            let (store, id, waiters) = (store.clone(), id.clone(), waiters.clone());
            tokio::spawn(async move { serve_events(&waiters, &store, &id, &delegations).await })
        };
        Self {
            store: store.clone(),
            id,
            waiters,
            wake_ups,
        }
    }

    fn entry(&self, ticket: &str) -> QueueEntry {
        let queue = TurnQueue {
            store: self.store.clone(),
            waiters: self.waiters.clone(),
            beats: Arc::default(),
            key: key(),
            patience: None,
        };
        let request = EnterRequest {
            principal: make::principal("alice"),
            server: server(),
            worker: self.id.clone(),
            ticket: make::token(ticket),
            lease: Millis::from(LEASE),
            line: Line::Last,
            scope: TurnScope::Call,
            held: None,
        };
        QueueEntry::new(queue, request)
    }

    /// A turn that its call has only for so long while its server is silent.
    async fn take_for(&self, ticket: &str, patience: Duration) -> Turn {
        let mut entry = self.entry(ticket);
        entry.set_patience(patience);
        entry.take(&call(), PATIENCE).await.unwrap().0
    }

    async fn take(&self, ticket: &str, wait_max: Duration) -> Result<Turn, TurnError> {
        let (turn, _) = self.entry(ticket).take(&call(), wait_max).await?;
        Ok(turn)
    }
}

/// The result of taking a turn.
type Taken = Result<(Turn, EnterReply), TurnError>;

impl Worker {
    /// A caller that waits: its ENTER precedes every later command.
    async fn waits(&self, ticket: &str) -> JoinHandle<Taken> {
        let entry = self.entry(ticket);
        let mut call = Box::pin(async move { entry.take(&call(), PATIENCE).await });
        tokio::select! {
            biased;
            came = &mut call => panic!("the turn is free: {came:?}"),
            () = yields(1) => {}
        }
        tokio::spawn(call)
    }
}

/// A call that no client can cancel.
fn call() -> TurnTaker {
    TurnTaker::new(None, &Arc::default())
}

/// Yields to other tasks this many times.
async fn yields(moments: usize) {
    for _ in 0..moments {
        tokio::task::yield_now().await;
    }
}

fn server() -> ServerName {
    make::server("sandbox")
}

fn key() -> SessionKey {
    make::code_key("zoe-0011223344556677")
}

async fn begun(store: &Store) {
    store.create(&key(), &make::code_create()).await.unwrap();
}

/// Waits until the session has no turns or tickets (END IFIDLE succeeds), and creates it again.
async fn until_idle(store: &Store) {
    let end = mooring_session::rules::EndRequest {
        when: EndCondition::Idle,
        ..make::end()
    };
    eventually("no call has the turn or waits for it", async || {
        store.end(&key(), &end).await.is_ok()
    })
    .await;
    begun(store).await;
}

async fn redis_with_turns() -> (RedisServer, Store) {
    let server = RedisServer::start(Module::Loaded);
    let store = redis_store(&server).await;
    turns_are_given(&store).await;
    begun(&store).await;
    (server, store)
}

/// Turns that did not end by their holder, such as a leaked ticket.
fn lost(server: &RedisServer) -> u64 {
    let figures = server.command(&["INFO", "mooring"]);
    let text = redis::from_redis_value::<String>(figures).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("mooring_turns_lost:"));
    line.expect("the figure is there").parse().unwrap()
}

async fn callers_get_the_turn_one_after_another(store: &Store) {
    begun(store).await;
    let workers = [Worker::new(store, "w:1"), Worker::new(store, "v:1")];
    let first = workers[0].take("first", PATIENCE).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let entry = workers[number % 2].entry(&format!("t{number}"));
        tasks.spawn(async move {
            let (turn, _) = entry.take(&call(), PATIENCE).await.unwrap();
            assert!(!turn.is_lost());
            turn.number().unwrap()
        });
    }
    let mut numbers = vec![first.number().unwrap()];
    drop(first);
    while let Some(number) = tasks.join_next().await {
        numbers.push(number.unwrap());
    }
    let mut once = numbers.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 9, "each has a number of its own: {numbers:?}");
    until_idle(store).await;
}

async fn dropped_callers_block_no_other(store: &Store) {
    begun(store).await;
    let worker = Worker::new(store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    // It learns who has the turn.
    let late = worker.take("late", SHORT).await;
    let by_itself = |holder: &TurnHolder| holder.worker == worker.id;
    assert!(
        matches!(&late, Err(TurnError::Busy { holder: Some(holder) }) if by_itself(holder)),
        "{late:?}"
    );
    let gone = worker.take("gone", PATIENCE);
    assert!(tokio::time::timeout(SHORT, gone).await.is_err());
    // A caller that is dropped before the first answer.
    let entry = worker.entry("asked");
    let asked = tokio::spawn(async move { entry.take(&call(), PATIENCE).await });
    tokio::task::yield_now().await;
    asked.abort();
    drop(held);
    let next = worker.take("next", PATIENCE).await.unwrap();
    drop(next);
    until_idle(store).await;
}

async fn a_turn_is_lost_with_its_session(store: &Store) {
    begun(store).await;
    let worker = Worker::new(store, "w:1");
    let turn = worker.take("held", PATIENCE).await.unwrap();
    store.end(&key(), &make::end()).await.unwrap();
    tokio::time::timeout(PATIENCE, turn.lost()).await.unwrap();
    assert!(turn.is_lost());
    let refused = worker.take("late", PATIENCE).await.unwrap_err();
    assert_eq!(
        refused,
        TurnError::Store(StoreError::Refused(Refusal::Ended))
    );
}

/// The store reports it once, so it must not be lost on a waiting call.
#[tokio::test]
async fn a_dead_owner_is_reported_with_the_turn() {
    let store = memory_store();
    begun(&store).await;
    let worker = Worker::new(&store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    let driver = make::worker("d:1");
    store.beat(&make::beat("d:1", 600_000)).await.unwrap();
    let bind = BindRequest {
        server: server(),
        worker: driver.clone(),
        ..make::bind("t1", "i1", "u1")
    };
    store.bind(&key(), &bind).await.unwrap();
    store.gone(&driver).await.unwrap();
    let next = worker.waits("next").await;
    drop(held);
    let (_, entered) = next.await.unwrap().unwrap();
    let lost = entered.routed.worker_lost.map(|lost| lost.worker);
    assert_eq!(lost, Some(driver));
    assert!(entered.routed.binding.is_some());
}

/// A gateway that was too busy to send heartbeats in time is not refused.
#[tokio::test]
async fn a_late_heartbeat_does_not_cost_the_turn() {
    let store = memory_store();
    begun(&store).await;
    let beat = make::beat("w:1", 600_000);
    store.beat(&beat).await.unwrap();
    let worker = Worker::new(&store, "w:1");
    store.gone(&worker.id).await.unwrap();
    let call = worker.waits("late").await;
    store.beat(&beat).await.unwrap();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn in_memory() {
    let store = memory_store();
    callers_get_the_turn_one_after_another(&store).await;
    dropped_callers_block_no_other(&store).await;
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = embedded_store(&path);
    callers_get_the_turn_one_after_another(&store).await;
    dropped_callers_block_no_other(&store).await;
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn in_redis() {
    let (server, store) = redis_with_turns().await;
    callers_get_the_turn_one_after_another(&store).await;
    dropped_callers_block_no_other(&store).await;
    assert_eq!(lost(&server), 0, "a ticket was not given back");
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn a_short_turn_is_two_commands() {
    let (server, store) = redis_with_turns().await;
    let worker = Worker::new(&store, "w:1");
    server.command(&["CONFIG", "RESETSTAT"]);
    for round in 0..10 {
        worker.take(&format!("t{round}"), PATIENCE).await.unwrap();
    }
    until_idle(&store).await;
    let figures = server.command(&["INFO", "commandstats"]);
    let figures = redis::from_redis_value::<String>(figures).unwrap();
    for command in ["session.enter", "session.leave"] {
        let calls = format!("cmdstat_{command}:calls=10,");
        assert!(figures.to_lowercase().contains(&calls), "{figures}");
    }
}

/// Such as one that runs code.
#[tokio::test]
async fn a_turn_that_ends_on_another_thread_opens_no_connection() {
    let (server, store) = redis_with_turns().await;
    let worker = Worker::new(&store, "w:1");
    let clients = || {
        let figures = server.command(&["INFO", "clients"]);
        let text = redis::from_redis_value::<String>(figures).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("connected_clients:"));
        line.unwrap().to_owned()
    };
    worker.take("first", PATIENCE).await.unwrap();
    let before = clients();
    for round in 0..5 {
        let turn = worker.take(&format!("t{round}"), PATIENCE).await.unwrap();
        tokio::task::spawn_blocking(move || drop(turn))
            .await
            .unwrap();
    }
    until_idle(&store).await;
    assert_eq!(clients(), before);
}

#[tokio::test]
async fn a_holder_keeps_its_turn() {
    let (_server, store) = redis_with_turns().await;
    let worker = Worker::new(&store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    let busy = worker.take("late", LEASE + RENEW_EVERY).await;
    assert!(matches!(busy, Err(TurnError::Busy { .. })));
    assert!(!held.is_lost());
}

#[tokio::test]
async fn a_turn_whose_holder_was_killed_passes_on() {
    let (_server, store) = redis_with_turns().await;
    let mut dead = Worker::new(&store, "dead:1").entry("dead");
    assert!(dead.ask(None).await.unwrap().turn.is_some());
    // Like a killed holder, it releases nothing.
    std::mem::forget(dead);
    let worker = Worker::new(&store, "w:1");
    worker.take("next", PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_ticket_that_was_refused_as_its_gateway_counted_as_dead_is_left() {
    let store = memory_store();
    begun(&store).await;
    store.beat(&make::beat("w:1", SHORT_TTL_MS)).await.unwrap();
    store.beat(&make::beat("v:1", 600_000)).await.unwrap();
    let worker = Worker::new(&store, "v:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    let mut waiting = Worker::new(&store, "w:1").entry("waiting");
    assert_eq!(waiting.ask(None).await.unwrap().turn, None);
    eventually("the gateway counts as dead", async || {
        let refused = waiting.ask(None).await;
        refused.is_err_and(|error| error == Refusal::Stale(Stale::Worker).into())
    })
    .await;
    drop(waiting);
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    drop(held);
    // The turn would be offered to the ticket for a second.
    worker.take("next", SHORT).await.unwrap();
}

#[tokio::test]
async fn the_queue_length_is_limited() {
    let (server, store) = redis_with_turns().await;
    server.command(&["CONFIG", "SET", "mooring.turn-queue-max", "1"]);
    let worker = Worker::new(&store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    let mut waiting = worker.entry("waiting");
    assert_eq!(waiting.ask(None).await.unwrap().turn, None);
    assert_eq!(
        worker.take("one", PATIENCE).await.unwrap_err(),
        TurnError::TooMany
    );
    drop(waiting);
    drop(held);
    worker.take("one", PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_turn_is_held_across_a_restart_of_redis() {
    let (mut server, store) = redis_with_turns().await;
    let worker = Worker::new(&store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    server.kill();
    server.start_again();
    let other = Worker::new(&store, "v:1");
    // Longer than the quiet time after a restart, in which only holders are granted their turns.
    let waiting = other.take("next", Duration::from_secs(7)).await;
    assert!(matches!(waiting, Err(TurnError::Busy { .. })));
    assert!(!held.is_lost());
    let number = held.number().unwrap();
    drop(held);
    let next = other.take("next", PATIENCE).await.unwrap();
    assert!(next.number().unwrap() > number);
}

#[tokio::test]
async fn without_redis_a_turn_has_no_number_and_is_not_lost() {
    let (mut server, _) = redis_with_turns().await;
    let store = open_with(&StoreOptions {
        place: StorePlace::Redis {
            url: redis_url(&server.url()),
            module: mooring_settings::ModuleUse::Required,
            when_away: WhenAway::Fallback,
        },
        key_prefix: make::PREFIX.to_owned(),
        command_timeout: Duration::from_secs(2),
        session_ttl: Duration::from_secs(3_600),
        history_entries_max: 64,
    })
    .await
    .unwrap();
    let worker = Worker::new(&store, "w:1");
    let before = worker.take("before", PATIENCE).await.unwrap();
    assert!(before.number().is_some());
    server.kill();
    eventually("the store is away", async || {
        store.get(&key()).await.ok();
        store.is_degraded()
    })
    .await;
    // The holder of Redis's turn has that of the fallback, and keeps its own.
    let busy = worker.take("busy", SHORT).await;
    assert!(matches!(busy, Err(TurnError::Busy { .. })));
    server.start_again();
    eventually("the store is back", async || !store.is_degraded()).await;
    let busy = worker.take("after", LEASE + RENEW_EVERY).await;
    assert!(matches!(busy, Err(TurnError::Busy { .. })));
    assert!(!before.is_lost());
    drop(before);
    let numbered = worker.take("next", PATIENCE).await.unwrap();
    assert!(numbered.number().is_some());
    drop(numbered);
    server.kill();
    eventually("the store is away again", async || {
        store.get(&key()).await.ok();
        store.is_degraded()
    })
    .await;
    let during = worker.take("during", PATIENCE).await.unwrap();
    assert_eq!(during.number(), None);
}
