//! Turns of calls that wait for their clients: released, resumed ahead of all others, and ended from any state.

use mooring_protocol::Sender;
use mooring_session::refusal::Stale;

use super::*;

/// Longer than it takes until the next caller has the turn.
const A_WHILE: Duration = Duration::from_millis(700);

async fn over_memory_and_redis(test: impl AsyncFn(&Store)) {
    let memory = memory_store();
    begun(&memory).await;
    test(&memory).await;
    let (server, redis) = redis_with_turns().await;
    test(&redis).await;
    assert_eq!(lost(&server), 0, "a ticket was not given back");
}

/// Another call has the turn and keeps it.
async fn is_busy(worker: &Worker, ticket: &str) {
    let busy = worker.take(ticket, A_WHILE).await;
    assert!(matches!(busy, Err(TurnError::Busy { .. })));
}

/// Resumes: the ENTER precedes every later command.
async fn resumes(turn: &Turn) {
    turn.resume();
    yields(20).await;
}

async fn comes(call: JoinHandle<Taken>) -> Turn {
    let came = tokio::time::timeout(PATIENCE, call).await.unwrap();
    came.unwrap().unwrap().0
}

#[tokio::test]
async fn a_call_that_waits_for_its_client_releases_its_turn_and_resumes_first() {
    over_memory_and_redis(async |store| {
        let workers = [Worker::new(store, "w:1"), Worker::new(store, "v:1")];
        let asks = workers[0].take("asks", PATIENCE).await.unwrap();
        // More than once in one call.
        for round in 0..2 {
            let other = workers[1].waits(&format!("other{round}")).await;
            asks.release();
            asks.release();
            let other = comes(other).await;
            let late = workers[1].waits(&format!("late{round}")).await;
            // The holder keeps it, so the call waits behind it and before the late one.
            resumes(&asks).await;
            is_busy(&workers[1], &format!("busy{round}")).await;
            drop(other);
            is_busy(&workers[1], &format!("again{round}")).await;
            assert!(!late.is_finished(), "the late one went before");
            // A resumed turn is released, too.
            asks.release();
            let late = comes(late).await;
            resumes(&asks).await;
            drop(late);
            is_busy(&workers[1], &format!("end{round}")).await;
        }
        assert!(!asks.is_lost(), "it was passed on, which is no loss");
        drop(asks);
        until_idle(store).await;
    })
    .await;
}

/// Nobody cancels it, and nobody may wait for it any more.
#[tokio::test]
async fn a_call_whose_server_is_silent_releases_its_turn_until_the_server_says_something() {
    /// Longer than the two looks at whether the turn is taken.
    const SILENT_MAX: Duration = Duration::from_secs(5);
    over_memory_and_redis(async |store| {
        let worker = Worker::new(store, "w:1");
        let silent = worker.take_for("silent", SILENT_MAX).await;
        let other = worker.take("other", PATIENCE).await.unwrap();
        assert!(!silent.is_lost(), "it was passed on, which is no loss");
        let progress = br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
        silent.saw(&Message::parse(progress, Sender::Upstream).unwrap());
        yields(20).await;
        is_busy(&worker, "late").await;
        drop(other);
        is_busy(&worker, "again").await;
        drop(silent);
        until_idle(store).await;
    })
    .await;
}

/// A resumed call waits under a ticket that cancellations do not name.
#[tokio::test]
async fn a_resumed_call_is_not_withdrawn() {
    over_memory_and_redis(async |store| {
        let worker = Worker::new(store, "w:1");
        let asks = worker.take("asks", PATIENCE).await.unwrap();
        asks.release();
        let other = worker.take("other", PATIENCE).await.unwrap();
        asks.resume();
        is_busy(&worker, "busy").await;
        let request = LeaveRequest {
            principal: make::principal("alice"),
            server: server(),
            who: LeaveTarget::WaitingUnder(make::token("asks")),
        };
        assert_eq!(
            store.leave(&key(), &request).await,
            Err(StoreError::Refused(Refusal::Stale(Stale::Turn)))
        );
        drop(other);
        is_busy(&worker, "late").await;
        drop(asks);
        until_idle(store).await;
    })
    .await;
}

#[tokio::test]
async fn a_dropped_turn_is_released_from_every_state() {
    over_memory_and_redis(async |store| {
        let worker = Worker::new(store, "w:1");
        for moments in [0, 1, 2, 5, 40, 300] {
            let passed = worker.take(&format!("p{moments}"), PATIENCE).await.unwrap();
            passed.release();
            yields(moments).await;
            drop(passed);
            until_idle(store).await;

            // Dropped while it waits for its turn again, and during or after the grant.
            for has_come in [false, true] {
                let [resumed, other] = ["r", "o"].map(|name| format!("{name}{moments}{has_come}"));
                let resumed = worker.take(&resumed, PATIENCE).await.unwrap();
                resumed.release();
                let other = worker.take(&other, PATIENCE).await.unwrap();
                resumed.resume();
                yields(moments).await;
                let (first, last) = if has_come {
                    (other, resumed)
                } else {
                    (resumed, other)
                };
                drop(first);
                yields(moments).await;
                drop(last);
                until_idle(store).await;
            }
        }
    })
    .await;
}

/// It may have been cancelled, and would then block all others.
#[tokio::test]
async fn a_call_continues_without_its_lost_turn() {
    let store = memory_store();
    begun(&store).await;
    let worker = Worker::new(&store, "w:1");
    let call = worker.take("call", PATIENCE).await.unwrap();
    store.end(&key(), &make::end()).await.unwrap();
    tokio::time::timeout(PATIENCE, call.lost()).await.unwrap();
    begun(&store).await;
    call.release();
    yields(20).await;
    call.resume();
    yields(20).await;
    drop(worker.take("other", PATIENCE).await.unwrap());
    until_idle(&store).await;
    assert!(call.is_lost());
}

async fn a_cancelled_resumed_call_loses_its_turn(store: &Store) {
    let worker = Worker::new(store, "w:1");
    let ticket = ticket_names::ticket(&key(), &server(), "7").unwrap();
    let asks = worker.take(ticket.as_str(), PATIENCE).await.unwrap();
    asks.release();
    drop(worker.take("other", PATIENCE).await.unwrap());
    resumes(&asks).await;
    is_busy(&worker, "busy").await;
    for beginning in ticket_names::beginnings(&key(), &server(), "7").unwrap() {
        let request = LeaveRequest {
            principal: make::principal("alice"),
            server: server(),
            who: LeaveTarget::WaitingUnder(beginning),
        };
        let said = withdraw(store, &key(), &request).await;
        assert_eq!(said, Withdrawal::NotWaiting);
    }
    drop(worker.take("next", PATIENCE).await.unwrap());
    drop(asks);
    until_idle(store).await;
}

/// A call that resumed after asking its client can be cancelled from any gateway, like any other.
#[tokio::test]
async fn resumed_calls_can_be_cancelled() {
    let memory = memory_store();
    begun(&memory).await;
    a_cancelled_resumed_call_loses_its_turn(&memory).await;
    let (_server, redis) = redis_with_turns().await;
    a_cancelled_resumed_call_loses_its_turn(&redis).await;
}

#[tokio::test]
async fn a_resuming_call_retries_a_full_queue() {
    let (server, store) = redis_with_turns().await;
    server.command(&["CONFIG", "SET", "mooring.turn-queue-max", "1"]);
    let worker = Worker::new(&store, "w:1");
    let is_full = async || worker.take("late", SHORT).await.unwrap_err() == TurnError::TooMany;
    let asks = worker.take("asks", PATIENCE).await.unwrap();
    asks.release();
    let other = worker.take("other", PATIENCE).await.unwrap();
    let fills = worker.waits("fills").await;
    eventually("the queue is full", is_full).await;
    asks.resume();
    tokio::time::sleep(SHORT).await;
    drop(other);
    let fills = comes(fills).await;
    // The check takes the only place for a moment, rarely enough for the call to find it free.
    eventually("the call waits", async || {
        tokio::time::sleep(A_WHILE).await;
        is_full().await
    })
    .await;
    drop(fills);
    eventually("the call has its turn again", async || {
        let last = worker.take("last", A_WHILE).await;
        matches!(last, Err(TurnError::Busy { .. }))
    })
    .await;
    drop(asks);
    until_idle(&store).await;
}

/// One round trip to begin, one in the background to end, none in between.
#[tokio::test]
async fn a_short_call_asks_the_store_once() {
    let (server, store) = redis_with_turns().await;
    let worker = Worker::new(&store, "w:1");
    server.command(&["CONFIG", "RESETSTAT"]);
    let turn = worker.take("short", PATIENCE).await.unwrap();
    tokio::time::sleep(RENEW_EVERY / 2).await;
    drop(turn);
    eventually("the turn is given back", async || {
        calls(&server, "session.leave") == 1
    })
    .await;
    assert_eq!(calls(&server, "session.enter"), 1);
}

/// How often the server has received this command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let figures = server.command(&["INFO", "commandstats"]);
    let text = redis::from_redis_value::<String>(figures).unwrap();
    let head = format!("cmdstat_{command}:calls=");
    let line = text.lines().find_map(|line| line.strip_prefix(&head));
    let count = line.and_then(|line| line.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}
