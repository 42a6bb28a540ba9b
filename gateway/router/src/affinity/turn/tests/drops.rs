//! Callers that are dropped at any time of their wait leave nothing in the queue.

use super::*;

/// Enough steps to drop a caller at every one.
const STEPS: usize = 12;

/// One step is at most as many yields as the store takes to answer.
async fn dropped_callers_leave_nothing(store: &Store, moments_each: usize) {
    begun(store).await;
    let worker = Worker::new(store, "w:1");
    for step in 0..STEPS {
        let moments = step * moments_each;
        // While the turn is free, and while it is taken.
        dropped_after(moments, worker.take(&format!("free{step}"), PATIENCE)).await;
        until_idle(store).await;
        let held = worker.take(&format!("held{step}"), PATIENCE).await.unwrap();
        dropped_after(moments, worker.take(&format!("gone{step}"), PATIENCE)).await;
        // Before, between and after the grant of its turn and the wake-up.
        let next = worker.waits(&format!("next{step}")).await;
        drop(held);
        yields(moments).await;
        next.abort();
        // A granted turn ends with the caller.
        drop(next);
        until_idle(store).await;
    }
}

/// Runs a future for this many yields, and drops it.
async fn dropped_after<T>(moments: usize, work: impl Future<Output = T>) {
    tokio::select! {
        biased;
        _ = work => {}
        () = yields(moments) => {}
    }
}

#[tokio::test]
async fn in_memory() {
    dropped_callers_leave_nothing(&memory_store(), 1).await;
}

#[tokio::test]
async fn in_redis() {
    let (server, store) = redis_with_turns().await;
    dropped_callers_leave_nothing(&store, 25).await;
    assert_eq!(lost(&server), 0, "a ticket was not given back");
}
