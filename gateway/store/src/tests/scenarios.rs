//! What a fleet lives through, the same over every store: caps, tombstones, lists, load and rates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::num::NonZeroU64;
use std::slice::from_ref;

use mooring_session::record::SessionState;
use mooring_session::refusal::{Busy, Refusal, Stale};
use mooring_session::rules::{
    BindRequest, ClaimRequest, CreateRequest, EndCondition, EndRequest, ForgetRequest, Ownership,
};
use mooring_session::time::Millis;

use super::every_store::over_every_store;
use crate::test_support::requests as make;
use crate::test_support::server::eventually;
use crate::{Family, Order, SEALED_BYTES_MAX, SessionKey, SessionQuery, Store, StoreError};

over_every_store! {
    a_principal_at_its_cap_ends_the_session_not_used_for_longest;
    code_sessions_take_no_place_of_a_cap;
    agent_sessions_have_a_cap_of_their_own;
    a_tombstone_is_cleaned_once_and_forgotten;
    sessions_are_listed_page_by_page;
    each_family_is_listed_and_reaped_by_itself;
    sessions_are_found_by_digest_and_by_text;
    active_sessions_are_counted_by_family;
    a_binding_goes_to_the_emptiest_instance;
    a_rate_lets_through_what_it_may;
    a_sealed_value_is_there_until_it_is_replaced_or_deleted;
}

fn capped(session: &str, cap: u64) -> CreateRequest {
    CreateRequest {
        cap: NonZeroU64::new(cap),
        ..make::create(session)
    }
}

async fn a_principal_at_its_cap_ends_the_session_not_used_for_longest(store: &Store) {
    for session in ["a", "b"] {
        let key = make::key(session);
        store.create(&key, &capped(session, 2)).await.unwrap();
    }
    let third = make::key("c");
    let refused = store.create(&third, &capped("c", 2)).await.unwrap_err();
    let StoreError::Refused(Refusal::Cap {
        cap: 2,
        least_recently_used,
    }) = refused
    else {
        unreachable!("the cap is refused: {refused:?}");
    };
    let idlest = store.named_key(&least_recently_used).unwrap();
    assert!([make::key("a"), make::key("b")].contains(&idlest));
    // One that is there already is no new one, and another principal has a cap of its own.
    store
        .create(&make::key("a"), &capped("a", 2))
        .await
        .unwrap();
    let other = CreateRequest {
        principal: make::principal("bob"),
        ..capped("d", 1)
    };
    store.create(&make::key("d"), &other).await.unwrap();
    let end = EndRequest {
        when: EndCondition::Idle,
        ..make::end()
    };
    store.end(&idlest, &end).await.unwrap();
    store.create(&third, &capped("c", 2)).await.unwrap();
}

async fn code_sessions_take_no_place_of_a_cap(store: &Store) {
    for user in ["alice-0011223344556677", "alice-8899aabbccddeeff"] {
        let key = make::code_key(user);
        store.create(&key, &make::code_create()).await.unwrap();
    }
    let first = make::key("a");
    store.create(&first, &capped("a", 1)).await.unwrap();
    let second = store.create(&make::key("b"), &capped("b", 1)).await;
    let Err(StoreError::Refused(Refusal::Cap {
        cap: 1,
        least_recently_used,
    })) = second
    else {
        unreachable!("the cap is refused: {second:?}");
    };
    assert_eq!(store.named_key(&least_recently_used), Some(first));
}

/// Neither do sessions of clients and of code take a place of it, nor it of theirs.
async fn agent_sessions_have_a_cap_of_their_own(store: &Store) {
    let code = make::code_key("alice-0011223344556677");
    store.create(&code, &make::code_create()).await.unwrap();
    store
        .create(&make::key("a"), &capped("a", 1))
        .await
        .unwrap();
    let agents =
        ["one", "two", "three"].map(|parent| make::agent_key("alice-0011223344556677", parent));
    let create = capped("0123456789abcdef01234567", 2);
    for key in &agents[..2] {
        store.create(key, &create).await.unwrap();
    }
    let Err(StoreError::Refused(Refusal::Cap {
        cap: 2,
        least_recently_used,
    })) = store.create(&agents[2], &create).await
    else {
        unreachable!("the cap is refused");
    };
    let idlest = store.named_key(&least_recently_used).unwrap();
    assert!(agents[..2].contains(&idlest));
    store.end(&idlest, &make::end()).await.unwrap();
    store.create(&agents[2], &create).await.unwrap();
    store
        .create(&make::key("a"), &capped("a", 1))
        .await
        .unwrap();
    let query = SessionQuery {
        family: Family::Agent,
        id_pattern: Some("coder:alice-*".into()),
        ..SessionQuery::default()
    };
    assert_same(walk(store, query).await, &agents);
}

async fn a_tombstone_is_cleaned_once_and_forgotten(store: &Store) {
    let key = make::key("s");
    let created = store.create(&key, &make::create("s")).await.unwrap();
    store
        .bind(&key, &make::bind("t1", "i1", "u1"))
        .await
        .unwrap();
    let clean = |worker: &str| ClaimRequest {
        worker: make::worker(worker),
        lease: Millis::new(50),
    };
    assert_eq!(
        store.claim(&key, &clean("w:1")).await,
        Err(StoreError::Refused(Refusal::Busy(Busy::Active)))
    );
    store.end(&key, &make::end()).await.unwrap();
    // Whoever ended it has the lease, and is nobody by name: it says so when it forgets.
    assert_eq!(
        store.claim(&key, &clean("w:1")).await,
        Err(StoreError::Refused(Refusal::Busy(Busy::Cleaning)))
    );
    assert_eq!(
        store.reap(&make::worker("w:1"), Family::Mcp, 10).await,
        Ok(Vec::new())
    );
    let forget = |generation| ForgetRequest {
        generation,
        worker: make::worker("w:1"),
    };
    let generation = created.record.generation;
    assert_eq!(
        store.forget(&key, &forget(generation + 1)).await,
        Err(StoreError::Refused(Refusal::Stale(Stale::Generation)))
    );
    store.forget(&key, &forget(generation)).await.unwrap();
    assert_eq!(
        store.get(&key).await,
        Err(StoreError::Refused(Refusal::NoSession))
    );
    let again = store.create(&key, &make::create("s")).await.unwrap();
    assert!(again.record.generation > generation);
    assert!(again.previous.is_empty());
}

async fn sessions_are_listed_page_by_page(store: &Store) {
    let mut keys = Vec::new();
    for n in 0..25 {
        let session = format!("l{n}");
        let key = make::key(&session);
        store.create(&key, &make::create(&session)).await.unwrap();
        if n % 5 == 0 {
            store.bind(&key, &make::bind("t", "i1", "u")).await.unwrap();
        }
        keys.push(key);
    }
    let all = SessionQuery {
        id_pattern: Some("l*".into()),
        count: 10,
        ..SessionQuery::default()
    };
    let mut listed = walk(store, all.clone()).await;
    assert_eq!(listed.len(), 25);
    listed.sort_by_key(|key| key.secret().to_owned());
    keys.sort_by_key(|key| key.secret().to_owned());
    assert_eq!(listed, keys);
    let bound = SessionQuery {
        instance: Some(make::instance("i1")),
        ..all.clone()
    };
    assert_eq!(walk(store, bound).await.len(), 5);
    let few = SessionQuery {
        id_pattern: Some("l[0-2]".into()),
        ..all.clone()
    };
    assert_eq!(walk(store, few).await.len(), 3);
    let overlong = SessionQuery {
        id_pattern: Some("*".repeat(1_000).into()),
        ..all
    };
    assert!(matches!(
        store.list(&overlong).await,
        Err(StoreError::Refused(Refusal::Argument(_)))
    ));
}

async fn sessions_are_found_by_digest_and_by_text(store: &Store) {
    let (one, two) = (make::key("find1"), make::key("find2"));
    let code = make::code_key("zoe-0011223344556677");
    for (key, create) in [
        (&one, make::create("find1")),
        (&two, make::create("find2")),
        (&code, make::code_create()),
    ] {
        store.create(key, &create).await.unwrap();
    }
    store
        .bind(&two, &make::bind("t", "http://far", "u"))
        .await
        .unwrap();
    let find = async |family, digest: Option<&str>, text: Option<&str>| {
        let query = SessionQuery {
            family,
            digest: digest.map(Into::into),
            text: text.map(Into::into),
            ..SessionQuery::default()
        };
        walk(store, query).await
    };
    for key in [&one, &two, &code] {
        let (digest, family) = (key.digest(), key.family());
        for digits in [4, 9, 16] {
            let found = find(family, digest.get(..digits), None).await;
            assert_eq!(found, [(*key).clone()], "{digest}");
        }
        let found = find(family, None, digest.get(..8)).await;
        assert_eq!(found, [(*key).clone()], "{digest}");
    }
    assert_eq!(
        find(Family::Mcp, None, Some("HTTP://f")).await,
        from_ref(&two)
    );
    assert_eq!(
        find(Family::Mcp, None, Some("lic")).await.len(),
        2,
        "of alice"
    );
    assert_eq!(
        find(Family::Mcp, None, Some("find")).await,
        [],
        "an id is a secret"
    );
    assert_eq!(
        find(Family::Code, None, Some("zoe-00")).await,
        from_ref(&code)
    );
    let digest = code.digest();
    assert_eq!(find(Family::Mcp, Some(&digest), None).await, []);
    for (digest, text) in [(Some("abc"), None), (Some("ABCD"), None), (None, Some(""))] {
        let query = SessionQuery {
            digest: digest.map(Into::into),
            text: text.map(Into::into),
            ..SessionQuery::default()
        };
        assert!(matches!(
            store.list(&query).await,
            Err(StoreError::Refused(Refusal::Argument(_)))
        ));
    }
}

async fn active_sessions_are_counted_by_family(store: &Store) {
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    for n in 0..4 {
        let session = format!("count{n}");
        let key = make::key(&session);
        store.create(&key, &make::create(&session)).await.unwrap();
        let bind = BindRequest {
            ownership: if n == 0 {
                Ownership::Owned
            } else {
                Ownership::Shared
            },
            ..make::bind("t", "i1", "u")
        };
        store.bind(&key, &bind).await.unwrap();
    }
    store.end(&make::key("count3"), &make::end()).await.unwrap();
    for user in ["alice-0011223344556677", "alice-8899aabbccddeeff"] {
        let key = make::code_key(user);
        store.create(&key, &make::code_create()).await.unwrap();
    }
    let server = store.redis_server();
    if server.is_some_and(|server| server.way == "script") {
        // Without the module nothing counts them; LIST knows.
        assert_eq!(store.count(Family::Mcp).await.unwrap(), None);
        return;
    }
    let counts = store.count(Family::Mcp).await.unwrap().unwrap();
    assert!(counts.complete);
    assert_eq!(counts.active_sessions(), 3);
    let of_instances: Vec<(&str, u64)> = counts
        .instances
        .iter()
        .map(|count| (&*count.instance, count.bindings))
        .collect();
    assert_eq!(of_instances, [("i1", 3)]);
    let of_owners: Vec<(bool, u64)> = counts
        .owners
        .iter()
        .map(|count| (count.alive, count.bindings))
        .collect();
    assert_eq!(of_owners, [(true, 1)]);
    let counts = store.count(Family::Code).await.unwrap().unwrap();
    assert_eq!(counts.active, [("sandbox".into(), 2)]);
    assert_eq!(
        store.count(Family::Agent).await.unwrap().unwrap().active,
        []
    );
}

async fn each_family_is_listed_and_reaped_by_itself(store: &Store) {
    let second = Millis::new(1_000);
    let short = |create: CreateRequest| CreateRequest {
        ttl: second,
        content_hash: make::code_create().content_hash,
        ..create
    };
    let mcp = make::key("m");
    store.create(&mcp, &short(make::create("m"))).await.unwrap();
    let users = ["zoe-0011223344556677", "bob-8899aabbccddeeff"];
    let code = users.map(make::code_key);
    let mut generations = Vec::new();
    for key in &code {
        let created = store.create(key, &short(make::code_create())).await;
        generations.push(created.unwrap().record.generation);
    }
    for (family, wanted) in [(Family::Mcp, &[mcp][..]), (Family::Code, &code)] {
        let query = SessionQuery {
            family,
            order: Order::Oldest,
            ..SessionQuery::default()
        };
        assert_same(walk(store, query).await, wanted);
        eventually("they expire", async || {
            let named = store.reap(&make::worker("w:1"), family, 10).await;
            named.unwrap().len() == wanted.len()
        })
        .await;
        let named = store.reap(&make::worker("w:1"), family, 10).await.unwrap();
        assert_same(named, wanted);
    }
    let bobs = SessionQuery {
        family: Family::Code,
        id_pattern: Some("sandbox:bob-*".into()),
        ..SessionQuery::default()
    };
    assert_eq!(walk(store, bobs).await, [code[1].clone()]);
    let clean = ClaimRequest {
        worker: make::worker("w:1"),
        lease: Millis::new(60_000),
    };
    let claimed = store.claim(&code[0], &clean).await.unwrap();
    assert_eq!(Some(&claimed.id), code[0].id());
    let forget = ForgetRequest {
        generation: generations[0],
        worker: make::worker("w:1"),
    };
    store.forget(&code[0], &forget).await.unwrap();
    let named = store.reap(&make::worker("w:1"), Family::Code, 10).await;
    assert_eq!(named, Ok(vec![code[1].clone()]));
    // A client that comes back is told on what it begins anew.
    let created = store.create(&code[1], &make::code_create()).await.unwrap();
    assert_eq!(created.revived, Some(SessionState::Expired));
    store.end(&code[1], &make::end()).await.unwrap();
    let created = store.create(&code[1], &make::code_create()).await.unwrap();
    assert_eq!(created.revived, Some(SessionState::Ended));
    assert!(created.record.generation > generations[1]);
}

/// Whether these are the same keys, in whatever order.
fn assert_same(mut keys: Vec<SessionKey>, wanted: &[SessionKey]) {
    let mut wanted = wanted.to_vec();
    for keys in [&mut keys, &mut wanted] {
        keys.sort_by(|a, b| a.secret().cmp(b.secret()));
    }
    assert_eq!(keys, wanted);
}

/// Every session of a query, and that no page is longer than asked for.
async fn walk(store: &Store, mut query: SessionQuery) -> Vec<crate::SessionKey> {
    let mut keys = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.complete && page.sessions.len() <= query.count);
        keys.extend(page.sessions.into_iter().map(|(key, _)| key));
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return keys,
        }
    }
}

async fn a_binding_goes_to_the_emptiest_instance(store: &Store) {
    let instances = ["i1", "i2", "i3"];
    let mut bound = Vec::new();
    for n in 0..9 {
        let session = format!("p{n}");
        let key = make::key(&session);
        store.create(&key, &make::create(&session)).await.unwrap();
        let mut bind = make::bind("t", "i1", "u");
        bind.instances = instances.map(make::instance).to_vec();
        bound.push(store.bind(&key, &bind).await.unwrap().binding.instance);
    }
    for instance in instances {
        let count = bound.iter().filter(|it| **it == make::instance(instance));
        assert_eq!(count.count(), 3, "{bound:?}");
    }
    store.beat(&make::beat("w:1", 60_000)).await.unwrap();
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.len(), 1);
    assert_eq!(workers[0].bindings, Some(9));
}

async fn a_rate_lets_through_what_it_may(store: &Store) {
    let minute = Millis::new(60_000);
    let mut allowed = 0;
    for _ in 0..5 {
        let rated = store.rate("calls:alice", 3, minute, 1).await.unwrap();
        allowed += u32::from(rated.allowed);
        assert!(rated.allowed == (rated.retry_after == Millis::new(0)));
    }
    assert_eq!(allowed, 3);
    assert!(store.rate("calls:bob", 3, minute, 3).await.unwrap().allowed);
    for (name, limit, window, cost) in [
        ("", 1, minute, 1),
        ("x", 0, minute, 1),
        ("x", 1, Millis::new(0), 1),
        ("x", 1, minute, 2),
    ] {
        assert!(matches!(
            store.rate(name, limit, window, cost).await,
            Err(StoreError::Refused(Refusal::Argument(_)))
        ));
    }
}

async fn a_sealed_value_is_there_until_it_is_replaced_or_deleted(store: &Store) {
    let names = ["tools:a", "tools:b"].map(str::to_owned);
    assert_eq!(store.get_sealed(&names).await.unwrap(), [None, None]);
    let value = [0, 255, 10];
    store.put_sealed("tools:b", b"before").await.unwrap();
    store.put_sealed("tools:b", &value).await.unwrap();
    let found = store.get_sealed(&names).await.unwrap();
    assert_eq!(found, [None, Some(value.to_vec())]);
    assert!(store.delete_sealed(&names).await.unwrap());
    assert!(!store.delete_sealed(&names).await.unwrap());
    assert_eq!(store.get_sealed(&names).await.unwrap(), [None, None]);
    let long = vec![0; SEALED_BYTES_MAX + 1];
    let refused = store.put_sealed("tools:a", &long).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))));
}
