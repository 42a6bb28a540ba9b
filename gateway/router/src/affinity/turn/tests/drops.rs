//! Callers that go away at any moment of their wait: nothing of theirs stays in the queue.

use super::*;

/// Enough for every step that a caller can be left at.
const STEPS: usize = 12;

/// A step is as many moments as the store takes for an answer, or less.
async fn whoever_goes_leaves_nothing(store: &Store, moments_each: usize) {
    begun(store).await;
    let worker = Worker::new(store, "w:1");
    for step in 0..STEPS {
        let moments = step * moments_each;
        // While nobody has the turn, and while somebody has.
        dropped_after(moments, worker.take(&format!("free{step}"), PATIENCE)).await;
        until_idle(store).await;
        let held = worker.take(&format!("held{step}"), PATIENCE).await.unwrap();
        dropped_after(moments, worker.take(&format!("gone{step}"), PATIENCE)).await;
        // Between its turn's coming and its hearing of it, or before, or after.
        let next = worker.waits(&format!("next{step}")).await;
        drop(held);
        yields(moments).await;
        next.abort();
        // It may have had its turn already, which goes with whoever could still have asked for it.
        drop(next);
        until_idle(store).await;
    }
}

/// Lets it run for so many moments, and drops it with what it came to.
async fn dropped_after<T>(moments: usize, work: impl Future<Output = T>) {
    tokio::select! {
        biased;
        _ = work => {}
        () = yields(moments) => {}
    }
}

#[tokio::test]
async fn in_memory() {
    whoever_goes_leaves_nothing(&memory_store(), 1).await;
}

#[tokio::test]
async fn in_redis() {
    let (server, store) = redis_with_turns().await;
    whoever_goes_leaves_nothing(&store, 25).await;
    assert_eq!(lost(&server), 0, "a ticket was not given back");
}
