//! Histories of sessions, the same over every store, and what is theirs alone in Redis.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::time::Duration;

use redis::Value;

use super::every_store::over_every_store;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, RedisServer, eventually, redis_url};
use crate::test_support::{enter, redis_store};
use crate::{
    EndCause, HistoryEvent, Store, StoreMode, StoreOptions, StorePlace, WhenAway, open_with,
};

over_every_store! {
    a_history_is_read_in_the_order_of_its_events;
    a_history_keeps_the_latest_entries_only;
    whoever_waits_for_a_turn_finds_its_holder;
}

fn bound(epoch: u64) -> HistoryEvent {
    HistoryEvent::Bound {
        server: "tools".into(),
        instance: "i1".into(),
        epoch,
    }
}

const ENDED: HistoryEvent = HistoryEvent::Ended {
    cause: EndCause::Client,
};

async fn epochs(store: &Store, session: &str) -> Vec<u64> {
    let entries = store.history(&make::key(session)).await.unwrap();
    let epoch = |event: &HistoryEvent| match event {
        HistoryEvent::Bound { epoch, .. } => *epoch,
        other => panic!("{other:?}"),
    };
    entries.iter().map(|entry| epoch(&entry.event)).collect()
}

async fn a_history_is_read_in_the_order_of_its_events(store: &Store) {
    let key = make::key("s");
    assert_eq!(store.history(&key).await, Ok(Vec::new()));
    let writing = store.clone();
    let writer = tokio::spawn(async move { writing.keep_history(&make::worker("a:1")).await });
    store.note(&key.digest(), bound(1));
    store.note(&key.digest(), bound(2));
    // What is not written yet is read too.
    assert_eq!(epochs(store, "s").await, [1, 2]);
    store.note(&make::key("other").digest(), bound(9));
    store.note(&key.digest(), ENDED);
    let named = async || {
        let entries = store.history(&key).await.unwrap();
        entries.iter().all(|entry| &*entry.gateway == "a:1")
    };
    eventually("the entries have their gateway", named).await;
    writer.abort();
    let _ = writer.await;
    store.finish_history().await;

    let entries = store.history(&key).await.unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry.event.kind()).collect();
    assert_eq!(kinds, ["bound", "bound", "ended"].map(Box::from));
    assert!(entries.is_sorted_by_key(|entry| entry.at));
    // Also under its digest alone, which logs have.
    assert_eq!(store.history_of(&key.digest()).await, Ok(entries));
    store
        .append_history(&key, "operator", bound(3))
        .await
        .unwrap();
    let last = store.history(&key).await.unwrap().pop().unwrap();
    assert_eq!((last.event, &*last.gateway), (bound(3), "operator"));
    store.renew_history(&key).await.unwrap();
    store.renew_history(&make::key("nobody")).await.unwrap();
}

async fn a_history_keeps_the_latest_entries_only(store: &Store) {
    let key = make::key("long");
    for epoch in 1..=70 {
        store.note(&key.digest(), bound(epoch));
        if epoch % 10 == 0 {
            store.finish_history().await;
        }
    }
    let expected: Vec<u64> = (7..=70).collect();
    assert_eq!(epochs(store, "long").await, expected);
}

async fn whoever_waits_for_a_turn_finds_its_holder(store: &Store) {
    crate::test_support::turns_are_given(store).await;
    let key = make::key("busy");
    store.create(&key, &make::create("busy")).await.unwrap();
    for worker in ["w:1", "v:1"] {
        store.beat(&make::beat(worker, 60_000)).await.unwrap();
    }
    assert!(
        store
            .enter(&key, &enter("w:1", "first"))
            .await
            .unwrap()
            .turn
            .is_some()
    );
    for ticket in ["second", "third"] {
        let waiting = store.enter(&key, &enter("v:1", ticket)).await.unwrap();
        assert_eq!(waiting.turn, None);
    }
    let blockers = store.blockers(&key).await.unwrap();
    let turns = blockers.turns.clone().unwrap();
    let holder = turns[0].holder.clone().unwrap();
    assert_eq!((&*turns[0].server, &*holder.gateway), ("tools", "w:1"));
    assert_eq!(holder.call, mooring_secrets::digest::short("first"));
    assert!(
        !holder.is_delegated && !holder.is_offered && holder.left_ms > 0,
        "{holder:?}"
    );
    let waiting: Vec<_> = turns[0].next.iter().map(|waiter| &*waiter.call).collect();
    let expected = ["second", "third"].map(mooring_secrets::digest::short);
    assert_eq!(
        waiting,
        expected.iter().map(|call| &**call).collect::<Vec<_>>()
    );
    assert_eq!(turns[0].waiting, 2);
    let text = blockers.sentences(u64::MAX).join("\n");
    assert!(
        text.contains("a call at w:1 has had the turn for"),
        "{text}"
    );
    assert!(
        text.contains("tools: 2 wait for the turn: 1. at v:1 for"),
        "{text}"
    );
    for secret in ["first", "second", "busy"] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// What a reply holds, where it is a number.
fn number(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_history_in_redis_expires_and_is_small() {
    let server = RedisServer::start(Module::Loaded);
    let store = redis_store(&server).await;
    let key = make::key("s");
    for event in [bound(1), bound(2), ENDED] {
        store.note(&key.digest(), event);
    }
    store.finish_history().await;
    let name = format!("mcpgw:session_history:{}", key.digest());
    assert_eq!(number(&server.command(&["LLEN", &name])), 3);
    let ttl = number(&server.command(&["PTTL", &name]));
    assert!(
        (10_000_000..=10_800_000).contains(&ttl),
        "three TTLs: {ttl}"
    );
    server.command(&["PEXPIRE", &name, "1000"]);
    store.renew_history(&key).await.unwrap();
    assert!(number(&server.command(&["PTTL", &name])) > 10_000_000);
    // Neither the key nor an entry has the id.
    let entries = format!("{:?}", server.command(&["LRANGE", &name, "0", "-1"]));
    assert!(!entries.contains("session_affinity"), "{entries}");
    let bytes = number(&server.command(&["MEMORY", "USAGE", &name]));
    assert!(bytes < 700, "{bytes} bytes for three entries");
}

#[tokio::test]
async fn what_redis_refuses_is_left_out_and_keeps_nothing_else_waiting() {
    let server = RedisServer::start(Module::Loaded);
    let store = redis_store(&server).await;
    let (key, other) = (make::key("s"), make::key("o"));
    let name = format!("mcpgw:session_history:{}", key.digest());
    server.command(&["SET", &name, "a text"]);
    store.note(&key.digest(), bound(1));
    store.note(&other.digest(), bound(2));
    store.finish_history().await;
    assert_eq!(epochs(&store, "o").await, [2]);
    server.command(&["DEL", &name]);
    store.finish_history().await;
    assert_eq!(
        epochs(&store, "s").await,
        [0; 0],
        "it was not kept to be tried again"
    );
}

#[tokio::test]
async fn nothing_is_written_where_histories_are_off() {
    let server = RedisServer::start(Module::Loaded);
    let options = StoreOptions {
        place: StorePlace::Redis {
            url: redis_url(&server.url()),
            module: mooring_settings::ModuleUse::Required,
            when_away: WhenAway::Fail,
        },
        key_prefix: make::PREFIX.to_owned(),
        command_timeout: Duration::from_secs(5),
        session_ttl: Duration::from_secs(3_600),
        history_entries_max: 0,
    };
    let store = open_with(&options).await.unwrap();
    let key = make::key("s");
    store.note(&key.digest(), bound(1));
    store.append_history(&key, "operator", ENDED).await.unwrap();
    store.finish_history().await;
    store.renew_history(&key).await.unwrap();
    let list = format!("{}session_history:{}", make::PREFIX, key.digest());
    assert_eq!(number(&server.command(&["EXISTS", &list])), 0);
    assert_eq!(store.history(&key).await, Ok(Vec::new()));
}

#[tokio::test]
async fn what_happens_during_an_outage_is_in_redis_after_it() {
    let mut server = RedisServer::start(Module::Loaded);
    let options = StoreOptions {
        place: StorePlace::Redis {
            url: redis_url(&server.url()),
            module: mooring_settings::ModuleUse::Required,
            when_away: WhenAway::Fallback,
        },
        key_prefix: make::PREFIX.to_owned(),
        command_timeout: Duration::from_secs(2),
        session_ttl: Duration::from_secs(3_600),
        history_entries_max: 64,
    };
    let store = open_with(&options).await.unwrap();
    let writing = store.clone();
    let writer = tokio::spawn(async move { writing.keep_history(&make::worker("a:1")).await });
    let key = make::key("s");
    server.kill();
    store.note(&key.digest(), bound(1));
    eventually("the store is away", async || {
        store.status().mode == StoreMode::Degraded
    })
    .await;
    store.note(&key.digest(), bound(2));
    let has_both = async || {
        store
            .history(&key)
            .await
            .is_ok_and(|entries| entries.len() == 2)
    };
    eventually("memory knows both", has_both).await;
    server.start_again();
    let other = redis_store(&server).await;
    eventually("both are in redis", async || {
        epochs(&other, "s").await == [1, 2]
    })
    .await;
    writer.abort();
}
