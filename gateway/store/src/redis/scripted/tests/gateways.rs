//! Several gateways, each with a store of its own, over one server: order, wake-ups, and no number twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mooring_session::rules::{EndCondition, EndRequest};
use mooring_session::time::Millis;

use super::super::step::Reads;
use super::*;
use crate::redis::{RedisStore, Resend};
use crate::test_support::server::redis_url;
use crate::test_support::{enter, leave};
use crate::{EnterRequest, WorkerEvent};

#[tokio::test]
async fn a_turn_and_a_claim_are_told_across_gateways() {
    let server = RedisServer::start(Module::Absent);
    let (one, other) = (scripted_store(&server).await, scripted_store(&server).await);
    for (store, worker) in [(&one, "w:1"), (&other, "v:1")] {
        store.beat(&make::beat(worker, 600_000)).await.unwrap();
    }
    let key = make::key("s");
    one.create(&key, &make::create("s")).await.unwrap();
    let first = one.enter(&key, &enter("w:1", "t1")).await.unwrap();
    let second = other.enter(&key, &enter("v:1", "t2")).await.unwrap();
    assert_eq!(second.turn, None);
    assert_eq!(second.holder.unwrap().worker, make::worker("w:1"));
    let waiting = {
        let other = other.clone();
        tokio::spawn(async move {
            other
                .wait_for_events(&make::worker("v:1"), Duration::from_secs(30))
                .await
        })
    };
    one.leave(&key, &leave("t1")).await.unwrap();
    let told = waiting.await.unwrap().unwrap();
    let [WorkerEvent::Turn { turn, .. }] = told.as_slice() else {
        unreachable!("the turn is told: {told:?}");
    };
    assert!(*turn > first.turn.unwrap());
    other.leave(&key, &leave("t2")).await.unwrap();

    let mut claim = make::bind("t1", "i1", "-");
    claim.upstream_session = None;
    let claimed = one.bind(&key, &claim).await.unwrap();
    let mut route = make::route();
    route.worker = make::worker("v:1");
    other.route(&key, &route).await.unwrap();
    let confirm = make::confirm(claimed.binding.epoch, "t1", "u1");
    one.confirm(&key, &confirm).await.unwrap();
    let told = other
        .wait_for_events(&route.worker, Duration::from_secs(30))
        .await
        .unwrap();
    assert!(
        matches!(told.as_slice(), [WorkerEvent::Settled { .. }]),
        "{told:?}"
    );
}

/// A turn that begins between what END IFIDLE reads and what it writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_not_ended_as_idle_while_another_gateway_begins_a_turn() {
    let server = RedisServer::start(Module::Absent);
    let open = async || {
        let url = redis_url(&server.url());
        let store = RedisStore::open_scripted(&url, make::PREFIX, Duration::from_secs(30)).await;
        store.unwrap().scripted.unwrap()
    };
    let (one, other) = (open().await, open().await);
    let key = make::key("s");
    let created = one.run(&key, &make::create("s"), Resend::Once).await;
    assert!(created.unwrap().created);
    let end = EndRequest {
        when: EndCondition::Idle,
        ..make::end()
    };
    let reads = Reads {
        turns: true,
        ..Reads::default()
    };
    let attempts = AtomicU64::new(0);
    let ended = one.step(&key, reads, Resend::Once, |step| {
        if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            let request = enter("v:1", "t1");
            let entering = other.enter(&key, &request);
            let entered = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(entering)
            });
            assert!(entered.unwrap().turn.is_some());
        }
        step.decide(&end)
    });
    let ended = ended.await;
    assert!(
        matches!(ended, Err(StoreError::Refused(Refusal::Busy(_)))),
        "{ended:?}"
    );
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
}

/// The holder is a gateway that no longer exists, and nobody else knows of it but the one that waits.
#[tokio::test]
async fn the_turn_of_a_dead_gateway_goes_to_the_next() {
    let server = RedisServer::start(Module::Absent);
    let (one, other) = (scripted_store(&server).await, scripted_store(&server).await);
    one.beat(&make::beat("w:1", 600_000)).await.unwrap();
    other.beat(&make::beat("v:1", 600_000)).await.unwrap();
    let key = make::key("s");
    one.create(&key, &make::create("s")).await.unwrap();
    let long = EnterRequest {
        lease: Millis::new(5_000),
        ..enter("w:1", "t1")
    };
    one.enter(&key, &long).await.unwrap();
    other.enter(&key, &enter("v:1", "t2")).await.unwrap();
    // Only now, so that it is alive all the time before on a machine that stands still.
    one.beat(&make::beat("w:1", 100)).await.unwrap();
    drop(one);
    let told = other
        .wait_for_events(&make::worker("v:1"), Duration::from_secs(30))
        .await
        .unwrap();
    assert!(
        matches!(told.as_slice(), [WorkerEvent::Turn { .. }]),
        "{told:?}"
    );
}

/// Four gateways take turns at two sessions as fast as they can. Nobody has a turn while another one has it, and every
/// number is higher than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_caller_at_a_time_over_all_gateways() {
    const GATEWAYS: usize = 4;
    const CALLS: usize = 15;
    /// Within the lease, also if the reply was late.
    const HELD_MS: u64 = 4_000;
    let server = RedisServer::start(Module::Absent);
    let sessions = ["a", "b"];
    let first = scripted_store(&server).await;
    for session in sessions {
        let key = make::key(session);
        first.create(&key, &make::create(session)).await.unwrap();
    }
    // Until when somebody has the turn, in milliseconds since the start; 0 if nobody has.
    let held: &'static [AtomicU64; 2] = Box::leak(Box::default());
    let highest: &'static [AtomicU64; 2] = Box::leak(Box::default());
    let started = Instant::now();
    let now_ms = move || u64::try_from(started.elapsed().as_millis()).unwrap();
    let mut gateways = Vec::new();
    for gateway in 0..GATEWAYS {
        let store = scripted_store(&server).await;
        let worker = make::worker(&format!("g{gateway}:1"));
        store
            .beat(&make::beat(worker.as_str(), 600_000))
            .await
            .unwrap();
        gateways.push(tokio::spawn(async move {
            for call in 0..CALLS * sessions.len() {
                let at = call % sessions.len();
                let (key, ticket) = (make::key(sessions[at]), format!("g{gateway}-{call}"));
                let request = EnterRequest {
                    lease: Millis::new(5_000),
                    ..enter(worker.as_str(), &ticket)
                };
                // Asking again keeps the place, so a lost event costs time only.
                let (turn, until) = loop {
                    let until = now_ms() + HELD_MS;
                    if let Some(turn) = store.enter(&key, &request).await.unwrap().turn {
                        break (turn, until);
                    }
                    let wait = Duration::from_millis(500);
                    drop(store.wait_for_events(&worker, wait).await.unwrap());
                };
                let other_until = held[at].swap(until, Ordering::SeqCst);
                assert!(other_until <= now_ms(), "two callers have the turn");
                let before = highest[at].swap(turn, Ordering::SeqCst);
                assert!(turn > before, "{turn} follows {before}");
                tokio::task::yield_now().await;
                let _ = held[at].compare_exchange(until, 0, Ordering::SeqCst, Ordering::SeqCst);
                drop(store.leave(&key, &leave(&ticket)).await);
            }
        }));
    }
    for gateway in gateways {
        gateway.await.unwrap();
    }
}

/// What gateways that vanish share with those that replace them.
#[derive(Default)]
struct Course {
    /// Until when somebody has the turn, in milliseconds since the start; 0 if nobody has.
    held: AtomicU64,
    highest: AtomicU64,
    turns: AtomicU64,
    is_over: AtomicBool,
}

/// Takes turns until the course is over. It may be aborted at any point, like a gateway that is killed.
async fn take_turns(url: String, name: String, course: Arc<Course>, started: Instant) {
    /// Shorter than the lease, which begins after the question.
    const HELD_MS: u64 = 1_800;
    /// A turn that is learned of later than this is not used: on a machine that stands still it may lapse meanwhile.
    const USABLE_MS: u64 = 1_000;
    let now_ms = || u64::try_from(started.elapsed().as_millis()).unwrap();
    let store = open_redis(&url, ModuleUse::Unused).await.unwrap();
    let worker = make::worker(&format!("{name}:1"));
    // Nobody sees that it is gone: only its leases lapse.
    store
        .beat(&make::beat(worker.as_str(), 600_000))
        .await
        .unwrap();
    let key = make::key("s");
    for call in 0.. {
        if course.is_over.load(Ordering::SeqCst) {
            return;
        }
        let ticket = format!("{name}-{call}");
        let request = EnterRequest {
            lease: Millis::new(2_000),
            ..enter(worker.as_str(), &ticket)
        };
        let asked_ms = now_ms();
        let Some(turn) = store.enter(&key, &request).await.unwrap().turn else {
            let wait = Duration::from_millis(200);
            drop(store.wait_for_events(&worker, wait).await.unwrap());
            // Whatever the events said, the next call asks anew.
            drop(store.leave(&key, &leave(&ticket)).await);
            continue;
        };
        let until = asked_ms + HELD_MS;
        if now_ms() < asked_ms + USABLE_MS {
            let other_until = course.held.swap(until, Ordering::SeqCst);
            assert!(other_until <= now_ms(), "two callers have the turn");
            let before = course.highest.fetch_max(turn, Ordering::SeqCst);
            assert!(turn > before, "{turn} follows {before}");
            course.turns.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let _ = (course.held).compare_exchange(until, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        drop(store.leave(&key, &leave(&ticket)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_vanish_in_mid_step_leave_order_and_records_whole() {
    const GATEWAYS: usize = 3;
    const VANISH: usize = 3;
    const TURNS_BETWEEN: u64 = 10;
    let server = RedisServer::start(Module::Absent);
    let observer = scripted_store(&server).await;
    let key = make::key("s");
    observer.create(&key, &make::create("s")).await.unwrap();
    let bound = observer
        .bind(&key, &make::bind("t", "i", "u"))
        .await
        .unwrap();
    let (course, started) = (Arc::new(Course::default()), Instant::now());
    let begin = |name: String| {
        let course = Arc::clone(&course);
        tokio::spawn(take_turns(server.url(), name, course, started))
    };
    let progress = async || {
        let before = course.turns.load(Ordering::SeqCst);
        eventually("turns go on", async || {
            course.turns.load(Ordering::SeqCst) >= before + TURNS_BETWEEN
        })
        .await;
    };
    let mut gateways: Vec<_> = (0..GATEWAYS)
        .map(|number| begin(format!("g{number}")))
        .collect();
    for number in 0..VANISH {
        progress().await;
        let next = begin(format!("h{number}"));
        std::mem::replace(&mut gateways[number % GATEWAYS], next).abort();
    }
    progress().await;
    course.is_over.store(true, Ordering::SeqCst);
    for gateway in gateways {
        gateway.await.unwrap();
    }
    let record = observer.get(&key).await.unwrap();
    assert_eq!(record.bindings[0].epoch, bound.binding.epoch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_gateways_binds_and_all_of_them_see_it() {
    let server = RedisServer::start(Module::Absent);
    let key = make::key("s");
    let first = scripted_store(&server).await;
    first.create(&key, &make::create("s")).await.unwrap();
    let mut binds = Vec::new();
    for gateway in 0..6 {
        let (store, key) = (scripted_store(&server).await, key.clone());
        binds.push(tokio::spawn(async move {
            let bind = make::bind(&format!("t{gateway}"), &format!("i{gateway}"), "u");
            let bound = store.bind(&key, &bind).await.unwrap();
            (bound.won, bound.binding.epoch, bound.binding.instance)
        }));
    }
    let (mut won, mut seen) = (0, BTreeSet::new());
    for bind in binds {
        let (has_won, epoch, instance) = bind.await.unwrap();
        won += usize::from(has_won);
        seen.insert((epoch, instance));
    }
    assert_eq!((won, seen.len()), (1, 1), "{seen:?}");
}
