//! An outage from its first lost command to the last session told: with a Redis that is really killed and started.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod code;
mod fleet;

use std::time::Duration;

use mooring_session::refusal::Refusal;
use mooring_session::rules::Ownership;

use super::LossReason;
use crate::key::InitDigest;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, PATIENCE, RedisServer, eventually, redis_url};
use crate::{
    Store, StoreError, StoreMode, StoreOptions, StorePlace, UnavailableReason, WhenAway, open_with,
};

const UNKNOWN: StoreError = StoreError::Away(UnavailableReason::Unknown);

async fn open(server: &RedisServer, when_away: WhenAway) -> Store {
    let options = StoreOptions {
        place: StorePlace::Redis {
            url: redis_url(&server.url()),
            module: mooring_settings::ModuleUse::Required,
            when_away,
        },
        key_prefix: make::PREFIX.to_owned(),
        command_timeout: Duration::from_secs(2),
        session_ttl: Duration::from_secs(3_600),
        history_entries_max: 64,
    };
    let store = open_with(&options).await.unwrap();
    if when_away == WhenAway::Fallback {
        // Where Redis is there, it says that this is the only gateway.
        let _ = store.beat(&make::beat("w0", 60_000)).await;
    }
    store
}

async fn until(store: &Store, mode: StoreMode) {
    let name = format!("the store is {mode:?}");
    eventually(&name, async || store.status().mode == mode).await;
}

/// A Redis, a store over it, and the session `s`, bound to `i1` with the upstream session `u1`.
async fn bound() -> (RedisServer, Store, u64) {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    let bound = store
        .bind(&key, &make::bind("t1", "i1", "u1"))
        .await
        .unwrap();
    (server, store, bound.binding.epoch)
}

async fn return_to_normal(server: &mut RedisServer, store: &Store) {
    server.start_again();
    until(store, StoreMode::Normal).await;
}

/// The record as Redis holds it, read by a gateway that was not there.
async fn seen_by_another(server: &RedisServer, session: &str) -> Vec<(String, Option<String>)> {
    let other = open(server, WhenAway::Fail).await;
    let record = other.get(&make::key(session)).await.unwrap();
    record
        .bindings
        .into_iter()
        .map(|view| {
            let upstream_session = view.upstream_session.map(|session| session.to_string());
            (view.instance.to_string(), upstream_session)
        })
        .collect()
}

#[tokio::test]
async fn a_session_minted_during_an_outage_is_there_after_it() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    server.kill();
    let key = make::key("m");
    let digest = InitDigest::of("{\"a\":1}");
    let created = store.create(&key, &make::create("m")).await.unwrap();
    assert!(created.created && store.is_degraded());
    store.put_init(&digest, "{\"a\":1}").await.unwrap();
    store
        .bind(&key, &make::bind("t", "i9", "u9"))
        .await
        .unwrap();
    let mut claim = make::bind("t2", "i8", "-");
    claim.server = make::server("half");
    claim.upstream_session = None;
    store.bind(&key, &claim).await.unwrap();
    store.route(&key, &make::route()).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().bindings.len(), 2);

    return_to_normal(&mut server, &store).await;
    let held = vec![("i9".to_owned(), Some("u9".to_owned()))];
    assert_eq!(seen_by_another(&server, "m").await, held);
    let other = open(&server, WhenAway::Fail).await;
    assert_eq!(
        other.get_init(&digest).await.unwrap().as_deref(),
        Some("{\"a\":1}")
    );
}

/// A client would get 200 here and 503 from all others.
#[tokio::test]
async fn no_session_is_minted_during_an_outage_where_other_gateways_exist() {
    let mut server = RedisServer::start(Module::Loaded);
    let other = open(&server, WhenAway::Fail).await;
    other.beat(&make::beat("w1", 60_000)).await.unwrap();
    let store = open(&server, WhenAway::Fallback).await;
    server.kill();
    until(&store, StoreMode::Degraded).await;
    let created = store.create(&make::key("m"), &make::create("m")).await;
    let refused = StoreError::Away(UnavailableReason::NotAlone);
    assert_eq!(created.unwrap_err(), refused);
}

#[tokio::test]
async fn what_was_just_read_is_served_and_all_else_is_away_and_never_gone() {
    let (mut server, store, _) = bound().await;
    let key = make::key("s");
    // Another session that this worker has not read, and a binding that one worker owns.
    let other = open(&server, WhenAway::Fail).await;
    let unread = make::key("unread");
    other
        .create(&unread, &make::create("unread"))
        .await
        .unwrap();
    let mut owned = make::bind("t", "i1", "u");
    (owned.server, owned.ownership) = (make::server("owned"), Ownership::Owned);
    let beat = make::beat("w:1", 60_000);
    store.beat(&beat).await.unwrap();
    let bound = store.bind(&key, &owned).await.unwrap().binding;

    server.kill();
    let routed = store.route(&key, &make::route()).await.unwrap();
    assert_eq!(
        routed.binding.unwrap().upstream_session,
        Some(make::upstream("u1"))
    );
    assert!(store.is_degraded());
    assert_eq!(store.route(&unread, &make::route()).await, Err(UNKNOWN));
    assert_eq!(store.end(&unread, &make::end()).await, Err(UNKNOWN));
    assert_eq!(store.get(&make::key("none")).await, Err(UNKNOWN));
    // Requests still reach the owner, which is never replaced.
    assert_eq!(store.bind(&key, &owned).await, Err(UNKNOWN));
    let mut of_owned = make::route();
    of_owned.server = make::server("owned");
    let routed = store.route(&key, &of_owned).await.unwrap();
    let owner = routed.binding.as_ref().and_then(|view| view.owner.clone());
    assert_eq!(owner, bound.owner, "with its address: {bound:?}");
    let mut rebind = make::rebind(bound.epoch, "t2", "i1");
    (rebind.server, rebind.ownership) = (make::server("owned"), Ownership::Owned);
    assert_eq!(store.rebind(&key, &rebind).await, Err(UNKNOWN));
    let mut foreign = make::route();
    foreign.principal = make::principal("bob");
    assert_eq!(
        store.route(&key, &foreign).await,
        Err(StoreError::Refused(Refusal::Denied))
    );
    // Others cannot hear a beat that only memory took.
    assert!(matches!(
        store.beat(&make::beat("w:1", 1_500)).await,
        Err(StoreError::Away(_))
    ));

    return_to_normal(&mut server, &store).await;
    store.route(&key, &make::route()).await.unwrap();
    assert_eq!(
        store.get(&make::key("none")).await,
        Err(StoreError::Refused(Refusal::NoSession))
    );
}

#[tokio::test]
async fn a_binding_moved_during_an_outage_stays_moved() {
    let (mut server, store, epoch) = bound().await;
    let key = make::key("s");
    server.kill();
    let moved = store
        .rebind(&key, &make::rebind(epoch, "t2", "i2"))
        .await
        .unwrap();
    assert!(moved.won);
    assert_eq!(moved.previous, Some(make::upstream("u1")));
    let confirm = make::confirm(moved.binding.epoch, "t2", "u2");
    store.confirm(&key, &confirm).await.unwrap();

    return_to_normal(&mut server, &store).await;
    let held = vec![("i2".to_owned(), Some("u2".to_owned()))];
    assert_eq!(seen_by_another(&server, "s").await, held);
}

#[tokio::test]
async fn a_session_ended_during_an_outage_stays_ended() {
    let (mut server, store, _) = bound().await;
    let key = make::key("s");
    // A binding that this worker does not know of, made by another.
    let other = open(&server, WhenAway::Fail).await;
    let mut unseen = make::bind("t", "i3", "u3");
    unseen.server = make::server("unseen");
    other.bind(&key, &unseen).await.unwrap();
    server.kill();
    let ended = store.end(&key, &make::end()).await.unwrap();
    assert!(ended.ended_now);
    assert_eq!(
        store.route(&key, &make::route()).await,
        Err(StoreError::Refused(Refusal::Ended))
    );

    return_to_normal(&mut server, &store).await;
    assert_eq!(
        store.route(&key, &make::route()).await,
        Err(StoreError::Refused(Refusal::Ended))
    );
    let loss = tokio::time::timeout(PATIENCE, store.losses().next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (loss.reason, loss.upstream_session),
        (LossReason::Ended, Some(make::upstream("u3")))
    );
}

#[tokio::test]
async fn what_redis_holds_wins_and_the_loser_is_reported() {
    for (command, held) in [
        // Another gateway moved the binding; another gateway's client ended the session.
        ("SESSION.REBIND", "i7"),
        ("SESSION.KILL", "i1"),
    ] {
        let (mut server, store, epoch) = bound().await;
        let key = make::key("s");
        server.kill();
        let moved = store
            .rebind(&key, &make::rebind(epoch, "t2", "i2"))
            .await
            .unwrap();
        let confirm = make::confirm(moved.binding.epoch, "t2", "u2");
        store.confirm(&key, &confirm).await.unwrap();
        server.elsewhere(|server| {
            let epoch = epoch.to_string();
            let mut words = vec![command, key.secret()];
            if command == "SESSION.REBIND" {
                words.extend(["alice", "tools", &epoch, "v:1", "t7", "LEASE", "600000"]);
                words.extend(["INSTANCES", "1", "i7"]);
            }
            server.command(&words);
        });

        return_to_normal(&mut server, &store).await;
        let loss = tokio::time::timeout(PATIENCE, store.losses().next())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(loss.reason, LossReason::Overruled);
        assert_eq!(loss.instance, make::instance("i2"));
        assert_eq!(loss.upstream_session, Some(make::upstream("u2")));
        let seen = seen_by_another(&server, "s").await;
        assert_eq!(seen.first().unwrap().0, held, "{command}");
    }
}

#[tokio::test]
async fn it_starts_degraded_and_told_to_fail_it_only_fails() {
    let mut server = RedisServer::start(Module::Loaded);
    let failing = open(&server, WhenAway::Fail).await;
    server.kill();
    let store = open(&server, WhenAway::Fallback).await;
    assert_eq!(store.status().mode, StoreMode::Degraded);
    until(&failing, StoreMode::Unavailable).await;
    let key = make::key("m");
    let refused = failing.create(&key, &make::create("m")).await;
    assert_eq!(
        refused,
        Err(StoreError::Away(UnavailableReason::Disconnected))
    );
    assert!(!failing.is_degraded());
    server.start_again();
    until(&store, StoreMode::Normal).await;
    until(&failing, StoreMode::Normal).await;
}

#[tokio::test]
async fn sessions_under_load_survive_an_outage() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    let before = open_many(&store, "before", 200).await;
    server.kill();
    let during = open_many(&store, "during", 200).await;
    for key in before.iter().chain(&during) {
        store.route(key, &make::route()).await.unwrap();
    }
    return_to_normal(&mut server, &store).await;
    for key in before.iter().chain(&during) {
        let routed = store.route(key, &make::route()).await.unwrap();
        assert_eq!(routed.binding.unwrap().instance, make::instance("i1"));
    }
}

async fn open_many(store: &Store, name: &str, count: usize) -> Vec<crate::SessionKey> {
    let mut keys = Vec::new();
    for n in 0..count {
        let session = format!("{name}{n}");
        let key = make::key(&session);
        store.create(&key, &make::create(&session)).await.unwrap();
        store
            .bind(&key, &make::bind("t", "i1", "u1"))
            .await
            .unwrap();
        keys.push(key);
    }
    keys
}
