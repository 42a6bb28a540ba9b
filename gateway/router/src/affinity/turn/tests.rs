//! Turns over every kind of store: in order, one at a time, given back however their callers go, and held across a restart
//! of Redis. [`passing`] has those that are released for a while, [`withdrawing`] those that are wanted no more, [`drops`]
//! the callers that go at any moment.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod drops;
mod passing;
mod withdrawing;

use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::WorkerId;
use mooring_session::rules::{BindRequest, EndCondition};
use tokio::task::{JoinHandle, JoinSet};

use super::keeper::RENEW_EVERY;
use super::*;
use crate::affinity::wake_ups::Waiters;
use mooring_store::test_support::requests as make;
use mooring_store::test_support::server::{Module, PATIENCE, RedisServer, eventually};
use mooring_store::test_support::{embedded_store, memory_store, redis_store, turns_are_given};
use mooring_store::{StoreOptions, StorePlace, WhenAway, open_with};

const SHORT: Duration = Duration::from_millis(50);

/// A worker: what waits in it, and the task that tells it the news.
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
            let (store, id, waiters) = (store.clone(), id.clone(), waiters.clone());
            tokio::spawn(async move { waiters.tell(&store, &id).await })
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
            key: key(),
        };
        let request = EnterRequest {
            principal: make::principal("alice"),
            server: server(),
            worker: self.id.clone(),
            ticket: make::token(ticket),
            lease: Millis::from(LEASE),
            line: Line::Last,
            held: None,
        };
        QueueEntry::new(queue, request)
    }

    async fn take(&self, ticket: &str, wait_max: Duration) -> Result<Turn, TurnError> {
        let (turn, _) = self.entry(ticket).take(wait_max).await?;
        Ok(turn)
    }
}

/// What taking a turn comes to.
type Taken = Result<(Turn, EnterReply), TurnError>;

impl Worker {
    /// A caller that waits: whatever the store is asked from now on, it is asked after it.
    async fn waits(&self, ticket: &str) -> JoinHandle<Taken> {
        let mut call = Box::pin(self.entry(ticket).take(PATIENCE));
        tokio::select! {
            biased;
            came = &mut call => panic!("the turn is free: {came:?}"),
            () = yields(1) => {}
        }
        tokio::spawn(call)
    }
}

/// Lets everything else go on for so many moments.
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

/// Nobody has or awaits a turn of the session any more: END IFIDLE says so, and then it is created anew.
async fn until_idle(store: &Store) {
    let end = mooring_session::rules::EndRequest {
        when: EndCondition::Idle,
        ..make::end()
    };
    eventually("nobody has or awaits the turn", async || {
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

/// Turns that ended otherwise than by their holder: a ticket that leaked would be one.
fn lost(server: &RedisServer) -> u64 {
    let figures = server.command(&["INFO", "mooring"]);
    let text = redis::from_redis_value::<String>(figures).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("mooring_turns_lost:"));
    line.expect("the figure is there").parse().unwrap()
}

async fn callers_have_it_one_after_another(store: &Store) {
    begun(store).await;
    let workers = [Worker::new(store, "w:1"), Worker::new(store, "v:1")];
    let first = workers[0].take("first", PATIENCE).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let entry = workers[number % 2].entry(&format!("t{number}"));
        tasks.spawn(async move {
            let (turn, _) = entry.take(PATIENCE).await.unwrap();
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

async fn whoever_gives_up_is_not_waited_for(store: &Store) {
    begun(store).await;
    let worker = Worker::new(store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    assert_eq!(
        worker.take("late", SHORT).await.unwrap_err(),
        TurnError::Busy
    );
    let gone = worker.take("gone", PATIENCE);
    assert!(tokio::time::timeout(SHORT, gone).await.is_err());
    // One who goes before the first answer, too.
    let asked = tokio::spawn(worker.entry("asked").take(PATIENCE));
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

/// It is said once, which must not be lost on a call that waits.
#[tokio::test]
async fn the_death_of_who_drove_the_session_is_told_with_the_turn() {
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

/// A worker that was too busy to beat in time is not refused: it is heard again in a moment.
#[tokio::test]
async fn a_worker_that_beats_late_has_its_turn_all_the_same() {
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
    callers_have_it_one_after_another(&store).await;
    whoever_gives_up_is_not_waited_for(&store).await;
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = embedded_store(&path);
    callers_have_it_one_after_another(&store).await;
    whoever_gives_up_is_not_waited_for(&store).await;
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn in_redis() {
    let (server, store) = redis_with_turns().await;
    callers_have_it_one_after_another(&store).await;
    whoever_gives_up_is_not_waited_for(&store).await;
    assert_eq!(lost(&server), 0, "a ticket was not given back");
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn a_holder_keeps_it_for_as_long_as_it_likes() {
    let (_server, store) = redis_with_turns().await;
    let worker = Worker::new(&store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    let busy = worker.take("late", LEASE + RENEW_EVERY).await;
    assert_eq!(busy.unwrap_err(), TurnError::Busy);
    assert!(!held.is_lost());
}

#[tokio::test]
async fn a_turn_whose_holder_was_killed_passes_on() {
    let (_server, store) = redis_with_turns().await;
    let mut dead = Worker::new(&store, "dead:1").entry("dead");
    assert!(dead.ask(None).await.unwrap().turn.is_some());
    // As one that was killed, it gives nothing back.
    std::mem::forget(dead);
    let worker = Worker::new(&store, "w:1");
    worker.take("next", PATIENCE).await.unwrap();
}

#[tokio::test]
async fn too_many_may_not_wait() {
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
    waiting.leave().await;
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
    // The whole of the quiet time, in which only holders are granted theirs, and more.
    let waiting = other.take("next", Duration::from_secs(7)).await;
    assert_eq!(waiting.unwrap_err(), TurnError::Busy);
    assert!(!held.is_lost());
    let number = held.number().unwrap();
    drop(held);
    let next = other.take("next", PATIENCE).await.unwrap();
    assert!(next.number().unwrap() > number);
}

#[tokio::test]
async fn while_redis_is_away_a_turn_has_no_number_and_is_not_lost() {
    let (mut server, _) = redis_with_turns().await;
    let store = open_with(&StoreOptions {
        place: StorePlace::Redis {
            url: server.url(),
            when_away: WhenAway::Fallback,
        },
        key_prefix: make::PREFIX.to_owned(),
        command_timeout: Duration::from_secs(2),
        session_ttl: Duration::from_secs(3_600),
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
    // Another call of this worker may have memory's turn before the holder of Redis's asks for it.
    let during = worker.take("during", PATIENCE).await.unwrap();
    assert_eq!(during.number(), None);
    let busy = worker.take("busy", SHORT).await;
    assert_eq!(busy.unwrap_err(), TurnError::Busy);
    server.start_again();
    eventually("the store is back", async || !store.is_degraded()).await;
    // What was held before is held again, and held the other off.
    let busy = worker.take("after", LEASE + RENEW_EVERY).await;
    assert_eq!(busy.unwrap_err(), TurnError::Busy);
    assert!(!before.is_lost() && !during.is_lost());
    drop(before);
    drop(during);
    worker.take("last", PATIENCE).await.unwrap();
}
