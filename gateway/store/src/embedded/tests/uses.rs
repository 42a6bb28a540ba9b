//! A cap ends the session that was not used for longest: reads are uses, whether the record was written for them or not.

use std::num::NonZeroU64;

use mooring_session::refusal::Refusal;
use mooring_session::rules::CreateRequest;

use super::super::EmbeddedStore;
use super::File;
use crate::error::StoreError;
use crate::test_support::requests as make;
use crate::transition::Get;

fn capped(session: &str) -> CreateRequest {
    CreateRequest {
        cap: NonZeroU64::new(2),
        ..make::create(session)
    }
}

/// The session that would have to go for one more.
async fn idlest(store: &EmbeddedStore) -> String {
    let refused = store.run(&make::key("c"), &capped("c")).await.unwrap_err();
    let StoreError::Refused(Refusal::Cap {
        least_recently_used,
        ..
    }) = refused
    else {
        panic!("the cap is refused: {refused:?}");
    };
    String::from_utf8(least_recently_used.to_vec()).unwrap()
}

async fn two_sessions(file: &File) -> EmbeddedStore {
    let store = file.open();
    for session in ["a", "b"] {
        let key = make::key(session);
        store.run(&key, &capped(session)).await.unwrap();
        store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
        file.pass(2_000);
    }
    store
}

#[tokio::test]
async fn a_read_counts_though_no_record_is_written_for_it() {
    let file = File::new();
    let store = two_sessions(&file).await;
    let (a, b) = (make::key("a"), make::key("b"));
    assert_eq!(idlest(&store).await, a.secret());
    let before = store.run(&a, &Get).await.unwrap();
    store.run(&a, &make::route()).await.unwrap();
    let after = store.run(&a, &Get).await.unwrap();
    assert_eq!(
        after.last_used_at, before.last_used_at,
        "the use is coalesced"
    );
    assert_eq!(idlest(&store).await, b.secret());
    // In every process, and in one that begins now.
    assert_eq!(idlest(&file.open()).await, b.secret());
    file.pass(1_000);
    store.run(&b, &make::route()).await.unwrap();
    assert_eq!(idlest(&store).await, a.secret());
}

#[tokio::test]
async fn a_change_that_is_no_use_takes_no_use_back() {
    let file = File::new();
    let store = two_sessions(&file).await;
    let (a, b) = (make::key("a"), make::key("b"));
    store.run(&a, &make::route()).await.unwrap();
    let epoch = store.run(&a, &Get).await.unwrap().bindings[0].epoch;
    file.pass(1_000);
    let rebound = store
        .run(&a, &make::rebind(epoch, "t2", "i"))
        .await
        .unwrap();
    let confirm = make::confirm(rebound.binding.epoch, "t2", "u2");
    store.run(&a, &confirm).await.unwrap();
    assert_eq!(idlest(&store).await, b.secret());
}
