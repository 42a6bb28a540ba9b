//! Streams whose binding no stream holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::time::Millis;

use super::*;
use crate::affinity::test_router::test_router;
use mooring_store::Store;
use mooring_store::test_support::memory_store;
use mooring_store::test_support::requests as make;

/// A live gateway, and a session.
async fn scene() -> (Store, WorkerId, Session) {
    let (store, worker) = (memory_store(), make::worker("gateway:1"));
    store.beat(&make::beat("gateway:1", 60_000)).await.unwrap();
    let create = make::create("one");
    let session = Session::new(
        make::key("one"),
        create.id.clone(),
        create.principal.clone(),
    );
    store.create(&session.key, &create).await.unwrap();
    (store, worker, session)
}

async fn hold(router: &SessionRouter, session: &Session) -> Result<StreamHold, HoldError> {
    let hold = router.hold_stream(session, StreamKind::Get).await?;
    Ok(hold.expect("the store is there"))
}

#[tokio::test]
async fn a_binding_without_a_stream_does_not_close_the_stream_to_its_gateway() {
    let (store, worker, session) = scene().await;
    let router = test_router(&store, &worker, Millis::new(0));
    // As if the client had disconnected before the answer to BIND.
    let lost = BindRequest {
        server: make::server("@get"),
        worker,
        ownership: Ownership::Owned,
        ..make::bind("lost", "stream", "stream")
    };
    let lost = store.bind(&session.key, &lost).await.unwrap();
    assert!(lost.won);

    let first = hold(&router, &session).await.unwrap();
    assert!(first.epoch() > lost.binding.epoch);
    let second = hold(&router, &session).await;
    assert!(matches!(second, Err(HoldError::Taken)), "{second:?}");
    drop(first);
    hold(&router, &session).await.unwrap();
}

#[tokio::test]
async fn of_anothers_stream_one_learns_nothing() {
    let (store, worker, session) = scene().await;
    let router = test_router(&store, &worker, Millis::new(0));
    let _open = hold(&router, &session).await.unwrap();
    let of_another = Session::new(
        session.key.clone(),
        session.id.clone(),
        make::principal("another"),
    );
    let refused = hold(&router, &of_another).await;
    assert!(
        matches!(
            refused,
            Err(HoldError::Store(StoreError::Refused(Refusal::Denied)))
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn one_of_two_that_open_a_stream_at_once_gets_it() {
    let (store, worker, session) = scene().await;
    let router = test_router(&store, &worker, Millis::new(0));
    let (one, other) = tokio::join!(hold(&router, &session), hold(&router, &session));
    let held = one.or(other).unwrap();
    assert!(hold(&router, &session).await.is_err());
    drop(held);
    hold(&router, &session).await.unwrap();
}
