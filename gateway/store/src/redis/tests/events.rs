//! The connection that waits: killed, cancelled, and of a server that goes and comes.

use std::time::Duration;

use mooring_session::rules::BindRequest;
use tokio::time::Instant;

use super::{RedisServer, RedisStore, open};
use crate::WorkerEvent;
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, PATIENCE, eventually};

/// The session `s` with a claim that the worker `v:1` was told of; answers what confirms it.
pub(super) async fn claimed(
    store: &RedisStore,
    key: &SessionKey,
) -> mooring_session::rules::ConfirmRequest {
    store.run(key, &make::create("s")).await.unwrap();
    let claim = BindRequest {
        upstream_session: None,
        ..make::bind("t1", "i1", "-")
    };
    let bound = store.run(key, &claim).await.unwrap();
    let mut route = make::route();
    route.worker = make::worker("v:1");
    store.run(key, &route).await.unwrap();
    make::confirm(bound.binding.epoch, "t1", "u1")
}

pub(super) fn settled(key: &SessionKey) -> WorkerEvent {
    WorkerEvent::Settled {
        key: key.clone(),
        server: make::server("tools"),
    }
}

/// Waits until a client of the server blocks.
pub(super) async fn somebody_waits(server: &RedisServer) {
    eventually("a client blocks", async || {
        let clients = server.command(&["INFO", "clients"]);
        let text = redis::from_redis_value::<String>(clients).unwrap();
        text.contains("blocked_clients:1")
    })
    .await;
}

#[tokio::test]
async fn callers_that_go_away_while_the_server_answers_lose_nothing() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let worker = make::worker("v:1");
    let key = make::key("s");
    let confirm = claimed(&store, &key).await;
    {
        let waits = store.wait_for_events(&worker, PATIENCE);
        tokio::pin!(waits);
        tokio::select! {
            told = &mut waits => unreachable!("nothing has settled: {told:?}"),
            () = somebody_waits(&server) => {}
        }
    }
    // Nobody waits now, and the answer comes.
    store.run(&key, &confirm).await.unwrap();
    eventually("the server has answered", async || {
        let clients = server.command(&["INFO", "clients"]);
        let text = redis::from_redis_value::<String>(clients).unwrap();
        text.contains("blocked_clients:0")
    })
    .await;
    assert_eq!(
        store.wait_for_events(&worker, PATIENCE).await,
        Ok(vec![settled(&key)])
    );
}

#[tokio::test]
async fn a_connection_that_is_killed_while_it_waits_is_made_anew() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let worker = make::worker("v:1");
    let key = make::key("s");
    let confirm = claimed(&store, &key).await;
    let killed = async {
        somebody_waits(&server).await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    let (told, ()) = tokio::join!(store.wait_for_events(&worker, PATIENCE), killed);
    assert!(matches!(told, Err(StoreError::Away(_))), "{told:?}");
    let confirmed = async {
        somebody_waits(&server).await;
        store.run(&key, &confirm).await.unwrap();
    };
    let (told, ()) = tokio::join!(store.wait_for_events(&worker, PATIENCE), confirmed);
    assert_eq!(told, Ok(vec![settled(&key)]));
}

#[tokio::test]
async fn a_wait_ends_in_time_and_asking_a_server_that_is_away_does_not_spin() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let worker = make::worker("v:1");
    let short = Duration::from_millis(20);
    assert_eq!(store.wait_for_events(&worker, short).await, Ok(Vec::new()));
    server.kill();
    let asked_at = Instant::now();
    for _ in 0..3 {
        let told = store.wait_for_events(&worker, short).await;
        assert!(matches!(told, Err(StoreError::Away(_))), "{told:?}");
    }
    let took = asked_at.elapsed();
    assert!(took >= 3 * short && took < PATIENCE, "{took:?}");
    server.start_again();
    eventually("news can be waited for again", async || {
        store.wait_for_events(&worker, short).await.is_ok()
    })
    .await;
}

/// Turns may be delegated only while events arrive.
#[tokio::test]
async fn after_a_lost_connection_events_arrive_by_another_path() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let worker = make::worker("v:1");
    assert_eq!(store.event_path(&worker), None, "nobody waits");
    let mut first = None;
    let killed = async {
        somebody_waits(&server).await;
        first = store.event_path(&worker);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("events arrive again", async || {
            let path = store.event_path(&worker);
            path.is_some() && path != first
        })
        .await;
    };
    let waits = async {
        loop {
            drop(store.wait_for_events(&worker, PATIENCE).await);
        }
    };
    tokio::select! {
        () = waits => {}
        () = killed => {}
    }
    assert!(first.is_some());
}
