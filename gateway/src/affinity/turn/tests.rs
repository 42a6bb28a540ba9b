//! Turns over every kind of store: in order, one at a time, given back however their callers go, and held across a restart
//! of Redis.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::time::Duration;

use mooring_session::rules::EndWhen;
use tokio::task::{JoinHandle, JoinSet};

use super::*;
use crate::store::tests::differential::{embedded, memory, redis};
use crate::store::tests::requests as make;
use crate::store::tests::server::{Module, PATIENCE, RedisServer, eventually};
use crate::store::tests::turns::turns_are_given;
use crate::store::{StoreOptions, StorePlace, WhenAway, open_with};

const SHORT: Duration = Duration::from_millis(50);

/// A worker: what waits in it, and the task that tells it the news.
struct Worker {
    store: Store,
    id: WorkerId,
    waiters: Waiters,
    news: JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.news.abort();
    }
}

impl Worker {
    fn new(store: &Store, name: &str) -> Self {
        let (id, waiters) = (make::worker(name), Waiters::default());
        let news = {
            let (store, id, waiters) = (store.clone(), id.clone(), waiters.clone());
            tokio::spawn(async move { waiters.tell(&store, &id).await })
        };
        Self {
            store: store.clone(),
            id,
            waiters,
            news,
        }
    }

    fn ticket(&self, name: &str) -> Ticket {
        Ticket {
            store: self.store.clone(),
            worker: self.id.clone(),
            waiters: self.waiters.clone(),
            key: key(),
            principal: make::principal("alice"),
            server: make::server("sandbox"),
            token: make::token(name),
        }
    }

    async fn take(&self, name: &str, wait_max: Duration) -> Result<Turn, TurnError> {
        self.ticket(name).take(wait_max).await
    }
}

fn key() -> SessionKey {
    make::code_key("zoe-0011223344556677")
}

async fn begun(store: &Store) {
    store.create(&key(), &make::code_create()).await.unwrap();
}

/// Nobody has or awaits a turn of the session any more: END IFIDLE says so, and then it is created anew.
async fn until_idle(store: &Store) {
    let end = mooring_session::rules::End {
        when: EndWhen::Idle,
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
    let store = redis(&server).await;
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
        let ticket = workers[number % 2].ticket(&format!("t{number}"));
        tasks.spawn(async move {
            let turn = ticket.take(PATIENCE).await.unwrap();
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
    let asked = tokio::spawn(worker.ticket("asked").take(PATIENCE));
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

#[tokio::test]
async fn in_memory() {
    let store = memory(crate::store::tests::system_clock());
    callers_have_it_one_after_another(&store).await;
    whoever_gives_up_is_not_waited_for(&store).await;
    a_turn_is_lost_with_its_session(&store).await;
}

#[tokio::test]
async fn in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = embedded(&path, crate::store::tests::system_clock());
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
    let dead = Worker::new(&store, "dead:1").ticket("dead");
    assert!(dead.ask(None).await.unwrap().turn.is_some());
    let worker = Worker::new(&store, "w:1");
    worker.take("next", PATIENCE).await.unwrap();
}

#[tokio::test]
async fn too_many_may_not_wait() {
    let (server, store) = redis_with_turns().await;
    server.command(&["CONFIG", "SET", "mooring.turn-queue-max", "1"]);
    let worker = Worker::new(&store, "w:1");
    let held = worker.take("held", PATIENCE).await.unwrap();
    let waiting = worker.ticket("waiting");
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
        command_timeout: Duration::from_millis(500),
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
