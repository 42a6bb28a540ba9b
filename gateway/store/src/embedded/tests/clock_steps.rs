//! A wall clock that is set: nothing is cleaned up or deleted early, and no rate refuses for as long as the step.

use mooring_session::record::SessionState;
use mooring_session::rules::RateRequest;
use mooring_session::time::Millis;

use super::{File, STARTED_AT};
use crate::embedded::EmbeddedStore;
use crate::key::Family;
use crate::test_support::requests as make;
use crate::transition::Get;

/// Beyond the deadline of a session, and before the end of its tombstone.
const AHEAD_MS: u64 = 5_400_000;

async fn reaped(store: &EmbeddedStore) -> usize {
    let named = store.reap(&make::worker("w:1"), Family::Mcp, 10).await;
    named.unwrap().len()
}

/// What the thread does in between.
async fn purge(store: &EmbeddedStore) {
    let purged = store.run_on_thread(|database| {
        database.purge();
        Ok(())
    });
    purged.await.unwrap();
}

#[tokio::test]
async fn a_step_forward_and_back_cleans_up_and_deletes_nothing() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
    assert_eq!(reaped(&store).await, 0);
    // The second is beyond the tombstone's end too.
    for ahead in [AHEAD_MS, 1_000 * AHEAD_MS] {
        file.time.set_wall(STARTED_AT + ahead);
        assert_eq!(reaped(&store).await, 0, "{ahead} ms ahead");
        purge(&store).await;
    }
    file.time.set_wall(STARTED_AT);
    assert_eq!(reaped(&store).await, 0, "and back");
    let record = store.run(&key, &Get).await.unwrap();
    assert_eq!(record.state, SessionState::Active);
}

#[tokio::test]
async fn what_is_over_is_cleaned_up_a_minute_after_a_step() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
    assert_eq!(reaped(&store).await, 0);
    file.time.set_wall(STARTED_AT + AHEAD_MS);
    assert_eq!(reaped(&store).await, 0);
    file.pass(60_000);
    assert_eq!(reaped(&store).await, 1);
}

#[tokio::test]
async fn a_step_back_refuses_a_rate_for_a_window_and_not_for_the_step() {
    let file = File::new();
    let store = file.open();
    let request = RateRequest {
        limit: 5,
        window: Millis::new(1_000),
        cost: 1,
    };
    file.time.set_wall(STARTED_AT + AHEAD_MS);
    assert!(store.rate("r", &request).await.unwrap().allowed);
    file.time.set_wall(STARTED_AT);
    let refused = store.rate("r", &request).await.unwrap();
    assert!(!refused.allowed);
    file.pass(refused.retry_after.get());
    assert!(store.rate("r", &request).await.unwrap().allowed);
}
