//! A file that cannot be written: sessions go on in memory, and come back to the file.

use std::fs;

use mooring_session::refusal::Refusal;
use mooring_session::rules::{Ownership, RateRequest, RebindRequest};
use mooring_session::time::Millis;

use super::super::EmbeddedStore;
use super::File;
use crate::error::{NotReady, StoreError};
use crate::status::StoreMode;
use crate::test_support::requests as make;
use crate::transition::Get;
use crate::workers::WORKER_GRACE;

async fn create(store: &EmbeddedStore, session: &str) {
    store
        .run(&make::key(session), &make::create(session))
        .await
        .unwrap();
}

async fn returns(store: &EmbeddedStore) -> StoreMode {
    store
        .run_on_thread(|database| {
            database.return_to_file();
            Ok(())
        })
        .await
        .unwrap();
    store.status().get().mode
}

/// The store's own connection gets no more pages, as on a disk that is full.
async fn fill(store: &EmbeddedStore) {
    store
        .run_on_thread(|database| {
            let pages: i64 = database
                .connection
                .pragma_query_value(None, "page_count", |row| row.get(0))
                .unwrap();
            database
                .connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .unwrap();
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_full_disk_costs_no_session_and_the_file_gets_all_when_there_is_room() {
    let file = File::new();
    let store = file.open();
    create(&store, "before").await;
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    store.put_sealed("tools:a", b"value").await.unwrap();
    fill(&store).await;
    for n in 0..100 {
        create(&store, &format!("s{n}")).await;
    }
    assert_eq!(store.status().get().mode, StoreMode::Degraded);
    // Another process may have deleted it meanwhile.
    let names = ["tools:a".to_owned()];
    let why = "it cannot be written, and credentials are kept nowhere else";
    let read_only = StoreError::NotReady(NotReady::File(why.into()));
    assert_eq!(store.get_sealed(&names).await, Err(read_only.clone()));
    assert_eq!(store.delete_sealed(&names).await, Err(read_only.clone()));
    assert_eq!(store.put_sealed("tools:a", b"").await, Err(read_only));
    let once = RateRequest {
        limit: 1,
        window: Millis::new(60_000),
        cost: 1,
    };
    let taken = store.rate_shared("state", &once).await;
    assert!(
        matches!(taken, Err(StoreError::NotReady(NotReady::File(_)))),
        "{taken:?}"
    );
    let key = make::key("before");
    store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
    store.run(&make::key("s7"), &make::end()).await.unwrap();
    assert_eq!(store.workers().await.unwrap().len(), 1);
    assert_eq!(returns(&store).await, StoreMode::Normal);
    let other = file.open();
    for n in 0..100 {
        other.run(&make::key(&format!("s{n}")), &Get).await.unwrap();
    }
    let record = other.run(&key, &Get).await.unwrap();
    assert_eq!(record.bindings.len(), 1);
    let sealed = store.get_sealed(&names).await.unwrap();
    assert_eq!(sealed, [Some(b"value".to_vec())]);
    // And what is written now is in the file at once.
    create(&store, "after").await;
    other.run(&make::key("after"), &Get).await.unwrap();
}

#[tokio::test]
async fn a_file_that_may_only_be_read_is_served_from_a_copy() {
    let file = File::new();
    let store = file.open();
    create(&store, "s").await;
    store
        .run_on_thread(|database| {
            database
                .connection
                .pragma_update(None, "query_only", true)
                .unwrap();
            Ok(())
        })
        .await
        .unwrap();
    let bound = store.run(&make::key("s"), &make::bind("t", "i", "u")).await;
    assert!(bound.unwrap().won);
    assert_eq!(store.status().get().mode, StoreMode::Degraded);
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_begins_in_memory() {
    let file = File::new();
    let directory = file.path.parent().unwrap();
    fs::write(directory, "in the way").unwrap();
    let store = file.open();
    assert_eq!(store.status().get().mode, StoreMode::Degraded);
    create(&store, "s").await;
    store.run(&make::key("s"), &Get).await.unwrap();
    assert_eq!(returns(&store).await, StoreMode::Degraded);
    fs::remove_file(directory).unwrap();
    assert_eq!(returns(&store).await, StoreMode::Normal);
    file.open().run(&make::key("s"), &Get).await.unwrap();
}

#[tokio::test]
async fn what_another_process_has_changed_meanwhile_stays() {
    let file = File::new();
    let (store, other) = (file.open(), file.open());
    for session in ["mine", "both"] {
        create(&store, session).await;
    }
    fill(&store).await;
    for n in 0..100 {
        create(&store, &format!("s{n}")).await;
    }
    assert_eq!(store.status().get().mode, StoreMode::Degraded);
    for session in ["mine", "both"] {
        let bind = make::bind("memory", "i", "from-memory");
        store.run(&make::key(session), &bind).await.unwrap();
    }
    let bind = make::bind("file", "i", "from-file");
    other.run(&make::key("both"), &bind).await.unwrap();
    assert_eq!(returns(&store).await, StoreMode::Normal);
    for (session, kept) in [("mine", "from-memory"), ("both", "from-file")] {
        for store in [&store, &other] {
            let record = store.run(&make::key(session), &Get).await.unwrap();
            let upstream_session = record.bindings[0].upstream_session.as_ref();
            assert_eq!(upstream_session, Some(&make::upstream(kept)), "{session}");
        }
    }
}

/// Takes the binding of this epoch for `w:1`.
async fn takes(store: &EmbeddedStore, epoch: u64) -> Result<bool, StoreError> {
    let rebind = RebindRequest {
        ownership: Ownership::Owned,
        ..make::rebind(epoch, "taken", "i")
    };
    let rebound = store.run(&make::key("s"), &rebind).await?;
    Ok(rebound.won)
}

#[tokio::test]
async fn nothing_is_taken_from_a_process_whose_heartbeats_do_not_arrive() {
    let file = File::new();
    let (store, other) = (file.open(), file.open());
    create(&store, "s").await;
    for worker in ["v:1", "gone:1"] {
        other.beat(&make::beat(worker, 1_500)).await.unwrap();
    }
    other.gone(&make::worker("gone:1")).await.unwrap();
    let mut bind = make::bind("t", "i", "u");
    (bind.ownership, bind.worker) = (Ownership::Owned, make::worker("v:1"));
    let bound = other.run(&make::key("s"), &bind).await.unwrap();
    let epoch = bound.binding.epoch;
    store.run(&make::key("s"), &Get).await.unwrap();
    fill(&store).await;
    for n in 0..100 {
        create(&store, &format!("s{n}")).await;
    }
    assert_eq!(store.status().get().mode, StoreMode::Degraded);
    file.pass(3_600_000 - 1_000);
    let owned = Err(StoreError::Refused(Refusal::Owned(make::worker("v:1"))));
    assert_eq!(takes(&store, epoch).await, owned);
    let workers = store.workers().await.unwrap();
    let gone = workers.iter().find(|it| it.worker.name() == "gone");
    assert!(!gone.unwrap().alive, "it has said so");
    assert_eq!(returns(&store).await, StoreMode::Normal);
    assert_eq!(takes(&store, epoch).await, owned, "it may return later");
    file.pass(WORKER_GRACE.get());
    assert_eq!(takes(&store, epoch).await, Ok(true));
}
