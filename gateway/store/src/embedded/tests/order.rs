//! Commands on one session in the order in which they were made, some on the thread and some without it.

use std::pin::pin;

use futures_util::FutureExt;

use super::File;
use crate::test_support::requests as make;
use crate::test_support::{enter, leave};

#[tokio::test]
async fn a_turn_that_its_caller_no_longer_waits_for_is_released() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    {
        let _busy = store.database.lock().unwrap();
        let entered = store.enter(&key, &enter("w:1", "t1")).now_or_never();
        assert!(entered.is_none(), "the thread has it");
    }
    store.leave(&key, &leave("t1")).await.unwrap();
    let next = store.enter(&key, &enter("w:1", "t2")).await.unwrap();
    assert!(next.turn.is_some(), "nobody else has the turn");
}

#[tokio::test]
async fn calls_of_a_session_have_their_turns_by_arrival() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    let (first, second) = (enter("w:1", "t1"), enter("w:1", "t2"));
    let mut entering = pin!(store.enter(&key, &first));
    {
        let _busy = store.database.lock().unwrap();
        assert!(entering.as_mut().now_or_never().is_none());
    }
    let second = store.enter(&key, &second).await.unwrap();
    let first = entering.await.unwrap();
    assert!(first.turn.is_some());
    assert_eq!(second.turn, None);
}
