//! What operators want of the fleet: the same in every store, seen by all gateways of one, and unchanged while it is away.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use super::every_store::over_every_store;
use crate::clock::Clock;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, RedisServer, eventually, redis_url};
use crate::test_support::{embedded, redis_store};
use crate::{
    AddedServer, DesiredChange, DesiredStateError, OperatorNote, ParkedPart, Store, StoreError,
    StoreMode, StoreOptions, StorePlace, WhenAway, open_with,
};

over_every_store! {
    changes_are_made_as_a_whole_and_only_on_the_version_that_was_read;
    many_change_it_at_once_and_no_change_is_lost;
}

fn part(instance: &str) -> ParkedPart {
    ParkedPart {
        server: make::server("tools"),
        instance: Some(make::instance(instance)),
    }
}

fn park(instance: &str) -> DesiredChange {
    DesiredChange::Park(part(instance), OperatorNote::now("olga", ""))
}

async fn changes_are_made_as_a_whole_and_only_on_the_version_that_was_read(store: &Store) {
    let mut watch = store.watch_desired_state();
    let first = store.change_desired_state(Some(0), &[park("i1")]).await;
    let first = first.unwrap().version;
    assert_ne!(first, 0);
    assert!(watch.has_changed().unwrap());
    assert!(watch.borrow_and_update().parked.contains_key(&part("i1")));
    let added = AddedServer {
        definition: serde_json::json!({"id": "extra"}),
        note: OperatorNote::now("olga", "for a day"),
    };
    let changes = [
        DesiredChange::Unpark(part("i1")),
        DesiredChange::Drain(make::worker("w:1"), OperatorNote::now("olga", "")),
        DesiredChange::PutServer(make::server("extra"), added.clone()),
    ];
    let late = store.change_desired_state(Some(0), &changes).await;
    let changed = DesiredStateError::Changed {
        expected: 0,
        current: first,
    };
    assert_eq!(late, Err(changed));
    assert_eq!(store.desired_state().version, first);
    let second = store
        .change_desired_state(Some(first), &changes)
        .await
        .unwrap();
    assert!(second.version > first);
    assert_eq!(store.desired_state(), second);
    store.refresh_desired_state().await.unwrap();
    assert_eq!(
        store.desired_state(),
        second,
        "what is read is what was written"
    );
    assert_eq!(second.servers.get(&make::server("extra")), Some(&added));
    assert!(second.parked.is_empty() && second.draining.len() == 1);
    let again = [DesiredChange::Unpark(part("i1"))];
    let again = store.change_desired_state(None, &again).await.unwrap();
    assert_eq!(again.version, second.version, "nothing was changed");
}

async fn many_change_it_at_once_and_no_change_is_lost(store: &Store) {
    let names: Vec<String> = (0..8).map(|at| format!("i{at}")).collect();
    let tasks = names.iter().map(|name| async {
        let changes = [park(name)];
        while let Err(error) = store.change_desired_state(None, &changes).await {
            assert_eq!(error, DesiredStateError::Busy);
        }
    });
    futures_util::future::join_all(tasks).await;
    store.refresh_desired_state().await.unwrap();
    assert_eq!(store.desired_state().parked.len(), names.len());
}

/// Another process follows the changes of the first one.
async fn is_seen_by(other: Store, store: &Store) {
    let following = tokio::spawn(other.clone().follow_desired_state());
    store
        .change_desired_state(None, &[park("i1")])
        .await
        .unwrap();
    eventually("the other gateway sees it", async || {
        other.desired_state().parked.contains_key(&part("i1"))
    })
    .await;
    following.abort();
}

#[tokio::test]
async fn processes_that_share_a_file_see_each_others_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let open = || embedded(&path, Clock::system());
    is_seen_by(open(), &open()).await;
}

#[tokio::test]
async fn gateways_of_one_redis_see_each_others_changes() {
    let server = RedisServer::start(Module::Loaded);
    is_seen_by(redis_store(&server).await, &redis_store(&server).await).await;
    let fields = server.command(&["HKEYS", "mcpgw:desired_state"]);
    let fields: Vec<String> = redis::from_redis_value(fields).unwrap();
    assert_eq!(fields.len(), 2, "{fields:?}");
    assert!(fields.contains(&"parked:tools i1".to_owned()), "{fields:?}");
}

fn options(url: &str, when_away: WhenAway) -> StoreOptions {
    StoreOptions {
        place: StorePlace::Redis {
            url: redis_url(url),
            module: mooring_settings::ModuleUse::Required,
            when_away,
        },
        key_prefix: make::PREFIX.to_owned(),
        command_timeout: Duration::from_secs(2),
        session_ttl: Duration::from_secs(3_600),
        history_entries_max: 0,
    }
}

#[tokio::test]
async fn what_is_wanted_stays_in_force_and_cannot_be_changed_while_redis_is_away() {
    let mut server = RedisServer::start(Module::Loaded);
    for when_away in [WhenAway::Fallback, WhenAway::Fail] {
        let store = open_with(&options(&server.url(), when_away)).await.unwrap();
        let parked = store.change_desired_state(None, &[park("i1")]).await;
        let parked = parked.unwrap();
        server.kill();
        let refused = store.change_desired_state(None, &[park("i2")]).await;
        let is_away = |error: &DesiredStateError| {
            matches!(error, DesiredStateError::Store(StoreError::Away(_)))
        };
        assert!(refused.as_ref().is_err_and(is_away), "{refused:?}");
        assert!(store.refresh_desired_state().await.is_err());
        assert_eq!(store.desired_state(), parked);
        server.start_again();
        eventually("redis is back", async || {
            store.status().mode == StoreMode::Normal
                && store
                    .change_desired_state(None, &[park("i2")])
                    .await
                    .is_ok()
        })
        .await;
        assert_eq!(store.desired_state().parked.len(), 2);
    }
}

#[tokio::test]
async fn a_user_without_the_commands_is_named_as_the_cause() {
    let server = RedisServer::start(Module::Loaded);
    let line = "ACL SETUSER gateway on >secret ~mcpgw:* +@all -hget -hgetall";
    server.command(&line.split(' ').collect::<Vec<_>>());
    let url = format!("redis://gateway:secret@127.0.0.1:{}", server.port);
    let store = open_with(&options(&url, WhenAway::Fallback)).await.unwrap();
    let refused = store.change_desired_state(None, &[park("i1")]).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("NOPERM"), "{refused}");
    assert_eq!(store.status().mode, StoreMode::Normal);
}
