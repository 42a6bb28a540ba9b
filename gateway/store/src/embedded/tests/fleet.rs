//! What the processes over one file share beside the records: caps, load, tombstones, rates.

use std::num::NonZeroU64;

use mooring_session::refusal::{Busy, Refusal};
use mooring_session::rules::{ClaimRequest, CreateRequest, ForgetRequest, Ownership};
use mooring_session::time::Millis;

use super::File;
use crate::embedded::EmbeddedStore;
use crate::error::StoreError;
use crate::key::Family;
use crate::query::SessionQuery;
use crate::test_support::requests as make;
use crate::transition::Get;

fn clean(worker: &str) -> ClaimRequest {
    ClaimRequest {
        worker: make::worker(worker),
        lease: Millis::new(10_000),
    }
}

async fn reaped(store: &EmbeddedStore, worker: &str) -> usize {
    store
        .reap(&make::worker(worker), Family::Mcp, 10)
        .await
        .unwrap()
        .len()
}

#[tokio::test]
async fn a_cap_counts_what_another_process_made_and_not_what_expired() {
    let file = File::new();
    let (store, other) = (file.open(), file.open());
    let capped = |session: &str| CreateRequest {
        cap: NonZeroU64::new(2),
        ..make::create(session)
    };
    for session in ["a", "b"] {
        let key = make::key(session);
        store.run(&key, &capped(session)).await.unwrap();
        file.pass(1);
    }
    let key = make::key("c");
    assert_eq!(
        other.run(&key, &capped("c")).await,
        Err(StoreError::Refused(Refusal::Cap {
            cap: 2,
            least_recently_used: make::key("a").secret().as_bytes().into(),
        }))
    );
    // A use of it that is written makes the other one the idlest; expired, both stop counting.
    file.pass(300_000);
    let mut route = make::route();
    route.server = make::server("tools");
    store.run(&make::key("a"), &route).await.unwrap();
    let refused = other.run(&key, &capped("c")).await;
    assert!(
        matches!(&refused, Err(StoreError::Refused(Refusal::Cap { least_recently_used, .. }))
            if **least_recently_used == *make::key("b").secret().as_bytes()),
        "{refused:?}"
    );
    file.pass(4 * 3_600_000);
    other.run(&key, &capped("c")).await.unwrap();
}

#[tokio::test]
async fn a_session_goes_to_the_instance_that_all_processes_use_least() {
    let file = File::new();
    let stores = [file.open(), file.open(), file.open()];
    let mut counts = [0; 3];
    let instances = ["i1", "i2", "i3"].map(make::instance);
    for n in 0..12 {
        let session = format!("s{n}");
        let key = make::key(&session);
        let store = &stores[n % 3];
        store.run(&key, &make::create(&session)).await.unwrap();
        let mut bind = make::bind("t", "i1", "u");
        bind.instances = instances.to_vec();
        let bound = store.run(&key, &bind).await.unwrap();
        let place = instances
            .iter()
            .position(|it| *it == bound.binding.instance);
        counts[place.unwrap()] += 1;
    }
    assert_eq!(counts, [4, 4, 4]);
    // Moved away from, an instance counts as fuller for thirty seconds, however empty it is.
    let key = make::key("s0");
    let held = stores[0].run(&key, &Get).await.unwrap();
    let left = held.bindings[0].instance.clone();
    let mut rebind = make::rebind(held.bindings[0].epoch, "t2", "i1");
    rebind.instances = instances.to_vec();
    rebind.avoid = Some(left.clone());
    stores[0].run(&key, &rebind).await.unwrap();
    let placed = async |session: &str| {
        let key = make::key(session);
        stores[0].run(&key, &make::create(session)).await.unwrap();
        let mut bind = make::bind("t", "i1", "u");
        bind.instances = instances.to_vec();
        stores[0].run(&key, &bind).await.unwrap().binding.instance
    };
    assert_ne!(placed("soon").await, left);
    file.pass(30_000);
    assert_eq!(placed("later").await, left);
}

#[tokio::test]
async fn one_process_cleans_up_what_another_left_and_only_one_does() {
    let file = File::new();
    let (store, other) = (file.open(), file.open());
    let key = make::key("s");
    let created = store.run(&key, &make::create("s")).await.unwrap();
    store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
    file.pass(3_826_000);
    assert_eq!(reaped(&other, "v:1").await, 1);
    let record = other.run(&key, &clean("v:1")).await.unwrap();
    assert_eq!(record.bindings.len(), 1);
    assert_eq!(reaped(&store, "w:1").await, 0);
    assert_eq!(
        store.run(&key, &clean("w:1")).await,
        Err(StoreError::Refused(Refusal::Busy(Busy::Cleaning)))
    );
    // The cleaner dies: when its lease is over, another goes on.
    drop(other);
    file.pass(10_000);
    assert_eq!(reaped(&store, "w:1").await, 1);
    store.run(&key, &clean("w:1")).await.unwrap();
    let forget = ForgetRequest {
        generation: created.record.generation,
        worker: make::worker("w:1"),
    };
    store.run(&key, &forget).await.unwrap();
    assert_eq!(reaped(&store, "w:1").await, 0);
    let left: i64 = file
        .connection()
        .query_row("SELECT count(*) FROM bindings", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn what_is_owned_is_cleaned_by_its_owner_while_that_lives() {
    let file = File::new();
    let store = file.open();
    let key = make::key("s");
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    store.run(&key, &make::create("s")).await.unwrap();
    let mut owned = make::bind("t", "i", "u");
    owned.ownership = Ownership::Owned;
    store.run(&key, &owned).await.unwrap();
    file.pass(3_826_000);
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    assert_eq!(reaped(&store, "v:1").await, 0);
    assert_eq!(reaped(&store, "w:1").await, 1);
    store.gone(&make::worker("w:1")).await.unwrap();
    assert_eq!(reaped(&store, "v:1").await, 1);
}

/// Whether the other process's worker `v:1` is alive for this store.
async fn is_alive(store: &EmbeddedStore) -> bool {
    let workers = store.workers().await.unwrap();
    let found = workers.iter().find(|it| it.worker == make::worker("v:1"));
    found.unwrap().alive
}

/// The machine was suspended, or the wall clock set, between a heartbeat and its reading.
#[tokio::test]
async fn a_worker_survives_a_step_of_the_wall_clock() {
    let file = File::new();
    let (store, other) = (file.open(), file.open());
    other.beat(&make::beat("v:1", 1_500)).await.unwrap();
    assert!(is_alive(&store).await);
    file.pass(500);
    other.beat(&make::beat("v:1", 1_500)).await.unwrap();
    file.connection()
        .execute_batch("UPDATE workers SET last_beat_at = last_beat_at - 3600000")
        .unwrap();
    assert!(is_alive(&store).await);
    file.pass(999);
    assert!(is_alive(&store).await);
    file.pass(1);
    assert!(!is_alive(&store).await, "as old as the last look");
}

#[tokio::test]
async fn a_walk_through_the_list_meets_every_session_once_while_others_come_and_go() {
    let file = File::new();
    let store = file.open();
    for n in 0..10 {
        let session = format!("s{n}");
        let key = make::key(&session);
        store.run(&key, &make::create(&session)).await.unwrap();
        // Three of one moment each.
        file.pass(u64::from(n % 3 == 2));
    }
    let mut query = SessionQuery {
        count: 4,
        ..SessionQuery::default()
    };
    let mut met = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        met.extend(page.sessions.into_iter().map(|(key, _)| key));
        let new = format!("new{}", met.len());
        store
            .run(&make::key(&new), &make::create(&new))
            .await
            .unwrap();
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => break,
        }
    }
    let expected: Vec<_> = (0..10).map(|n| make::key(&format!("s{n}"))).collect();
    met.retain(|key| expected.contains(key));
    assert_eq!(met.len(), 10);
    assert!(expected.iter().all(|key| met.contains(key)));
    query.cursor = crate::query::Cursor::of("nonsense");
    assert!(matches!(
        store.list(&query).await,
        Err(StoreError::Refused(Refusal::Argument(_)))
    ));
}

#[tokio::test]
async fn processes_share_a_rate() {
    let file = File::new();
    let stores = [file.open(), file.open()];
    let request = mooring_session::rules::RateRequest {
        limit: 3,
        window: Millis::new(60_000),
        cost: 1,
    };
    let mut allowed = 0;
    for n in 0..6 {
        let rated = stores[n % 2].rate("calls", &request).await.unwrap();
        allowed += u32::from(rated.allowed);
    }
    assert_eq!(allowed, 3);
    file.pass(20_000);
    assert!(stores[0].rate("calls", &request).await.unwrap().allowed);
    assert!(!stores[1].rate("calls", &request).await.unwrap().allowed);
}

/// A dead instance's tombstones are put off by leases, and they are the oldest there are.
#[tokio::test]
async fn what_is_put_off_hides_nothing_that_expired_later() {
    let file = File::new();
    let store = file.open();
    let [first, second] = ["first", "second"].map(make::key);
    for (key, session) in [(&first, "first"), (&second, "second")] {
        store.run(key, &make::create(session)).await.unwrap();
        store.run(key, &make::bind("t", "i", "u")).await.unwrap();
        file.pass(1);
    }
    file.pass(3_826_000);
    store.run(&first, &clean("w:1")).await.unwrap();
    file.connection()
        .execute_batch(
            "WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < 2000)
             INSERT INTO sessions (key, fields, principal, lifecycle, created_at, last_used_at, over_at, holds,
                tombstone_ends_at, highest_number)
             SELECT key || n, fields, principal, lifecycle, created_at, last_used_at, over_at, holds,
                tombstone_ends_at, highest_number FROM sessions, copies WHERE key LIKE '%first'",
        )
        .unwrap();
    let named = store
        .reap(&make::worker("w:1"), Family::Mcp, 10)
        .await
        .unwrap();
    assert!(named.is_empty(), "as many as one call looks at");
    for _ in 0..2 {
        let named = store
            .reap(&make::worker("w:1"), Family::Mcp, 10)
            .await
            .unwrap();
        assert_eq!(named, std::slice::from_ref(&second));
        // That was the end, so the next one begins at the front.
        let named = store
            .reap(&make::worker("w:1"), Family::Mcp, 10)
            .await
            .unwrap();
        assert!(named.is_empty());
    }
}
