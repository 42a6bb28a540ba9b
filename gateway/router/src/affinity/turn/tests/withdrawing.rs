//! Calls that are withdrawn while they wait, and races with that.

use super::*;

/// Repetitions of a race.
const RACES: usize = 150;

const ID: &str = "\"call-1\"";

impl Worker {
    /// A ticket for a client's request.
    fn called(&self, id: &str) -> String {
        ticket_names::ticket(&key(), &server(), id)
            .unwrap()
            .to_string()
    }

    async fn withdraws(&self, id: &str) -> Withdrawal {
        let request = LeaveRequest {
            principal: make::principal("alice"),
            server: server(),
            who: LeaveTarget::WaitingUnder(beginning(id)),
        };
        withdraw(&self.store, &key(), &request).await
    }
}

fn beginning(id: &str) -> Token {
    let [first, _] = ticket_names::beginnings(&key(), &server(), id).unwrap();
    first
}

async fn waiting_calls_are_withdrawn_by_any_gateway(store: &Store) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    assert_eq!(there.withdraws(ID).await, Withdrawal::NotWaiting);
    let held = here.take("held", PATIENCE).await.unwrap();
    // Two requests with the same id, and another.
    let calls = [
        here.waits(&here.called(ID)).await,
        here.waits(&here.called(ID)).await,
    ];
    let other = here.waits(&here.called("2")).await;
    assert_eq!(there.withdraws(ID).await, Withdrawal::Withdrawn);
    for call in calls {
        let ended = tokio::time::timeout(PATIENCE, call).await.unwrap();
        assert_eq!(ended.unwrap().unwrap_err(), TurnError::Withdrawn);
    }
    assert_eq!(there.withdraws(ID).await, Withdrawal::NotWaiting);
    drop(held);
    let (turn, _) = other.await.unwrap().unwrap();
    // A call with its turn is in flight.
    assert_eq!(there.withdraws("2").await, Withdrawal::NotWaiting);
    assert!(!turn.is_lost());
    let next = here.waits(&here.called("3")).await;
    drop(turn);
    drop(next.await.unwrap().unwrap());
    until_idle(store).await;
}

/// Its server may never answer, which must neither block nor dispossess the next caller.
async fn a_running_cancelled_call_loses_its_turn(store: &Store) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    let cancelled = here.take(&here.called(ID), PATIENCE).await.unwrap();
    let next = there.waits(&there.called("2")).await;
    assert_eq!(there.withdraws(ID).await, Withdrawal::NotWaiting);
    let (next, _) = next.await.unwrap().unwrap();
    tokio::time::timeout(PATIENCE, cancelled.lost())
        .await
        .unwrap();
    // Later messages of its server give it no turn.
    cancelled.release();
    cancelled.resume();
    drop(next);
    let later = there.take("later", PATIENCE).await.unwrap();
    drop(later);
    until_idle(store).await;
    drop(cancelled);
    until_idle(store).await;
}

/// A duplicate of an in-flight request waits for it, and has its own turn.
async fn requests_of_one_id_share_no_turn(store: &Store) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    let first = here.take(&here.called(ID), PATIENCE).await.unwrap();
    for worker in [&here, &there] {
        let busy = worker.take(&worker.called(ID), SHORT).await;
        assert!(matches!(busy, Err(TurnError::Busy { .. })));
    }
    let second = there.waits(&there.called(ID)).await;
    drop(first);
    drop(second.await.unwrap().unwrap());
    until_idle(store).await;
}

/// Either the turn is granted or the call is withdrawn; the withdrawal reports which, and the queue is empty.
async fn a_withdrawal_races_with_the_turn(store: &Store, moments_each: usize) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    let (mut withdrawn, mut given) = (0, 0);
    for race in 0..RACES {
        let held = here.take(&format!("h{race}"), PATIENCE).await.unwrap();
        let id = race.to_string();
        let call = here.waits(&here.called(&id)).await;
        // Before, with and after the event of the turn.
        let passes = async {
            yields(race % 7 * moments_each).await;
            drop(held);
        };
        let withdraws = async {
            yields(race % 11 * moments_each).await;
            there.withdraws(&id).await
        };
        let ((), said) = tokio::join!(passes, withdraws);
        match (said, call.await.unwrap()) {
            (Withdrawal::Withdrawn, Err(TurnError::Withdrawn)) => withdrawn += 1,
            (Withdrawal::NotWaiting, Ok(_)) => given += 1,
            (said, came) => panic!("{said:?}, and the call came to {came:?}"),
        }
        until_idle(store).await;
    }
    assert!(withdrawn > 0 && given > 0, "{withdrawn} and {given}");
}

/// The call runs without a caller, and blocks no other.
async fn a_withdrawal_with_a_lost_event(store: &Store) {
    begun(store).await;
    let (deaf, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    deaf.wake_ups.abort();
    let held = there.take("held", PATIENCE).await.unwrap();
    let call = deaf.waits(&deaf.called(ID)).await;
    assert_eq!(there.withdraws(ID).await, Withdrawal::Withdrawn);
    let behind = there.waits("behind").await;
    drop(held);
    drop(behind.await.unwrap().unwrap());
    drop(call.await.unwrap().unwrap());
    until_idle(store).await;
}

/// The event overtakes the answer that put the call back in line, or granted its turn.
#[tokio::test]
async fn a_call_withdrawn_during_its_enter_does_not_run() {
    let store = memory_store();
    begun(&store).await;
    let worker = Worker::new(&store, "w:1");
    let ticket = make::token("t1");
    let _told = worker.waiters.join_turn(&ticket);
    worker.waiters.withdraw(&ticket);
    let withdrawn = worker.take(ticket.as_str(), PATIENCE).await;
    assert_eq!(withdrawn.unwrap_err(), TurnError::Withdrawn);
    until_idle(&store).await;
}

#[tokio::test]
async fn in_memory() {
    let store = memory_store();
    waiting_calls_are_withdrawn_by_any_gateway(&store).await;
    requests_of_one_id_share_no_turn(&store).await;
    a_running_cancelled_call_loses_its_turn(&store).await;
    a_withdrawal_races_with_the_turn(&store, 1).await;
    a_withdrawal_with_a_lost_event(&store).await;
}

#[tokio::test]
async fn in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = embedded_store(&path);
    waiting_calls_are_withdrawn_by_any_gateway(&store).await;
    requests_of_one_id_share_no_turn(&store).await;
    a_running_cancelled_call_loses_its_turn(&store).await;
}

#[tokio::test]
async fn in_redis() {
    let (_server, store) = redis_with_turns().await;
    waiting_calls_are_withdrawn_by_any_gateway(&store).await;
    requests_of_one_id_share_no_turn(&store).await;
    a_running_cancelled_call_loses_its_turn(&store).await;
    a_withdrawal_races_with_the_turn(&store, 25).await;
    a_withdrawal_with_a_lost_event(&store).await;
}
