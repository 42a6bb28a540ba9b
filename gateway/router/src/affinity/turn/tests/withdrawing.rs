//! Calls that are wanted no more while they wait, and whoever races with that.

use super::*;

/// How often a race is run.
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

async fn who_waits_is_withdrawn_by_any_worker(store: &Store) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    assert_eq!(there.withdraws(ID).await, Withdrawal::NotWaiting);
    let held = here.take("held", PATIENCE).await.unwrap();
    // A request that came twice, and another.
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
    // What has its turn is under way.
    assert_eq!(there.withdraws("2").await, Withdrawal::NotWaiting);
    assert!(!turn.is_lost());
    let next = here.waits(&here.called("3")).await;
    drop(turn);
    drop(next.await.unwrap().unwrap());
    until_idle(store).await;
}

/// Its server may never answer it; whoever comes next must not wait for that, nor may it lose its own turn to it.
async fn a_cancelled_call_passes_its_turn_on_while_it_still_runs(store: &Store) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    let cancelled = here.take(&here.called(ID), PATIENCE).await.unwrap();
    let next = there.waits(&there.called("2")).await;
    assert_eq!(there.withdraws(ID).await, Withdrawal::NotWaiting);
    let (next, _) = next.await.unwrap().unwrap();
    tokio::time::timeout(PATIENCE, cancelled.lost())
        .await
        .unwrap();
    // What its server still says gives it no turn again.
    cancelled.release();
    cancelled.resume();
    drop(next);
    let later = there.take("later", PATIENCE).await.unwrap();
    drop(later);
    until_idle(store).await;
    drop(cancelled);
    until_idle(store).await;
}

/// A request that comes again while it is under way waits for itself, and has a turn of its own.
async fn requests_of_one_id_share_no_turn(store: &Store) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    let first = here.take(&here.called(ID), PATIENCE).await.unwrap();
    for worker in [&here, &there] {
        let busy = worker.take(&worker.called(ID), SHORT).await;
        assert_eq!(busy.unwrap_err(), TurnError::Busy);
    }
    let second = there.waits(&there.called(ID)).await;
    drop(first);
    drop(second.await.unwrap().unwrap());
    until_idle(store).await;
}

/// The turn comes, or the call is withdrawn: whoever withdraws it is told which, and nothing is left in the queue.
async fn a_withdrawal_races_with_the_turn(store: &Store, moments_each: usize) {
    begun(store).await;
    let (here, there) = (Worker::new(store, "w:1"), Worker::new(store, "v:1"));
    let (mut withdrawn, mut given) = (0, 0);
    for race in 0..RACES {
        let held = here.take(&format!("h{race}"), PATIENCE).await.unwrap();
        let id = race.to_string();
        let call = here.waits(&here.called(&id)).await;
        // Before, with and after the news of the turn.
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

/// It is made for nobody, and holds nobody up.
async fn a_withdrawal_of_which_the_news_is_lost(store: &Store) {
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

/// The news overtakes the answer that put the call back in line, or gave it its turn.
#[tokio::test]
async fn what_is_withdrawn_while_it_asks_does_not_run() {
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
    who_waits_is_withdrawn_by_any_worker(&store).await;
    requests_of_one_id_share_no_turn(&store).await;
    a_cancelled_call_passes_its_turn_on_while_it_still_runs(&store).await;
    a_withdrawal_races_with_the_turn(&store, 1).await;
    a_withdrawal_of_which_the_news_is_lost(&store).await;
}

#[tokio::test]
async fn in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = embedded_store(&path);
    who_waits_is_withdrawn_by_any_worker(&store).await;
    requests_of_one_id_share_no_turn(&store).await;
    a_cancelled_call_passes_its_turn_on_while_it_still_runs(&store).await;
}

#[tokio::test]
async fn in_redis() {
    let (_server, store) = redis_with_turns().await;
    who_waits_is_withdrawn_by_any_worker(&store).await;
    requests_of_one_id_share_no_turn(&store).await;
    a_cancelled_call_passes_its_turn_on_while_it_still_runs(&store).await;
    a_withdrawal_races_with_the_turn(&store, 25).await;
    a_withdrawal_of_which_the_news_is_lost(&store).await;
}
