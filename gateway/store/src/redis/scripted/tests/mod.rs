//! Two gateways over one Redis without the module, the move from one way to the other, and what a server refuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod gateways;
mod providers;

use std::time::Duration;

use mooring_session::refusal::Refusal;
use mooring_settings::ModuleUse;
use redis::Value;

use super::script::{SCRIPT, SCRIPT_SHA1};
use crate::test_support::requests as make;
use crate::test_support::server::{Module, RedisServer, eventually};
use crate::test_support::{open_redis, scripted_store};
use crate::{SessionQuery, StoreError};

#[test]
fn the_hash_is_that_of_the_script() {
    let server = RedisServer::start(Module::Absent);
    let loaded = server.command(&["SCRIPT", "LOAD", SCRIPT]);
    assert_eq!(loaded, Value::BulkString(SCRIPT_SHA1.into()));
}

#[tokio::test]
async fn a_server_that_forgets_the_script_is_given_it_again() {
    let server = RedisServer::start(Module::Absent);
    let store = scripted_store(&server).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    store.get(&key).await.unwrap();
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_a_corrupt_session() {
    let server = RedisServer::start(Module::Absent);
    let store = scripted_store(&server).await;
    let key = make::key("s");
    server.command(&["SET", key.secret(), "x"]);
    let got = store.get(&key).await;
    assert!(
        matches!(got, Err(StoreError::Refused(Refusal::Corrupt(_)))),
        "{got:?}"
    );
}

#[tokio::test]
async fn a_fleet_that_mixes_both_ways_is_refused_in_either_order() {
    let server = RedisServer::start(Module::Loaded);
    for (first, second) in [
        (ModuleUse::Required, ModuleUse::Unused),
        (ModuleUse::Unused, ModuleUse::Required),
    ] {
        server.command(&["FLUSHALL"]);
        let store = open_redis(&server.url(), first).await.unwrap();
        store.beat(&make::beat("w:1", 600_000)).await.unwrap();
        let refused = open_redis(&server.url(), second)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("store.module is"), "{refused}");
        // Another one in the same way is welcome.
        open_redis(&server.url(), first).await.unwrap();
    }
}

#[tokio::test]
async fn a_gateway_whose_fleet_has_turned_to_the_other_way_beats_no_more() {
    let server = RedisServer::start(Module::Absent);
    let store = scripted_store(&server).await;
    store.beat(&make::beat("w:1", 600_000)).await.unwrap();
    let marker = format!("{}fleet", make::PREFIX);
    server.command(&["SET", &marker, "module"]);
    eventually("the heartbeat is refused", async || {
        let beaten = store.beat(&make::beat("w:1", 600_000)).await;
        matches!(beaten, Err(StoreError::NotReady(_)))
    })
    .await;
}

/// As an operator does it: the gateways stop, the marker lapses, and gateways with the other setting start.
#[tokio::test]
async fn a_fleet_moves_from_one_way_to_the_other_and_back_without_losing_a_session() {
    let server = RedisServer::start(Module::Loaded);
    let marker = format!("{}fleet", make::PREFIX);
    let mut records = Vec::new();
    for (round, way) in [
        ModuleUse::Required,
        ModuleUse::Unused,
        ModuleUse::Required,
        ModuleUse::Unused,
    ]
    .into_iter()
    .enumerate()
    {
        server.command(&["DEL", &marker]);
        let store = open_redis(&server.url(), way).await.unwrap();
        for number in 0..20 {
            let session = format!("{round}-{number}");
            let key = make::key(&session);
            store.create(&key, &make::create(&session)).await.unwrap();
            store.bind(&key, &make::bind("t", "i", "u")).await.unwrap();
            records.push((key.clone(), store.get(&key).await.unwrap()));
        }
        for (key, record) in &records {
            assert_eq!(store.get(key).await.unwrap(), *record);
            let routed = store.route(key, &make::route()).await.unwrap();
            assert_eq!(routed.binding.unwrap().epoch, record.bindings[0].epoch);
        }
        eventually("every session is listed", async || {
            let query = SessionQuery {
                count: 1_000,
                ..SessionQuery::default()
            };
            let page = store.list(&query).await.unwrap();
            page.complete && page.sessions.len() == records.len()
        })
        .await;
    }
}

/// What a fleet with the module left: sessions that it has ended are in an index still, and a key is none of a session.
#[tokio::test]
async fn indexes_are_built_from_nothing_but_the_records() {
    let server = RedisServer::start(Module::Absent);
    let stale = format!("{}index:principal:session_affinity:alice", make::PREFIX);
    server.command(&["ZADD", &stale, "9999999999999", "ended"]);
    server.command(&["SET", make::key("string").secret(), "x"]);
    let store = scripted_store(&server).await;
    assert_eq!(server.command(&["EXISTS", &stale]), Value::Int(0));
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    assert_eq!(server.command(&["ZCARD", &stale]), Value::Int(1));
}

/// Each is counted once, and none is refused because of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_many_callers_share_counts_each_of_them() {
    const CALLERS: u64 = 600;
    let server = RedisServer::start(Module::Absent);
    let (one, other) = (scripted_store(&server).await, scripted_store(&server).await);
    let day = mooring_session::time::Millis::new(86_400_000);
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let store = [&one, &other][usize::from(number % 2 == 0)].clone();
        callers.push(tokio::spawn(async move {
            store.rate("r", CALLERS, day, 1).await.unwrap().allowed
        }));
    }
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    assert!(!one.rate("r", CALLERS, day, 1).await.unwrap().allowed);
}

#[tokio::test]
async fn after_a_restart_only_who_had_a_turn_gets_it_for_a_while() {
    let mut server = RedisServer::start(Module::Absent);
    let store = scripted_store(&server).await;
    let key = make::key("s");
    store.create(&key, &make::create("s")).await.unwrap();
    let held = store
        .enter(&key, &crate::test_support::enter("w:1", "t1"))
        .await
        .unwrap();
    server.kill();
    server.start_again();
    // The restart has lost the turn.
    server.command(&["DEL", &format!("{}turns:session_affinity:s", make::PREFIX)]);
    eventually("the server is back", async || store.get(&key).await.is_ok()).await;
    let other = store
        .enter(&key, &crate::test_support::enter("v:1", "t2"))
        .await
        .unwrap();
    let again = crate::EnterRequest {
        held: held.turn,
        ..crate::test_support::enter("w:1", "t1")
    };
    // On a machine that stood still for the whole quiet time, the other one has it.
    if other.turn.is_none() {
        let again = store.enter(&key, &again).await.unwrap();
        assert_eq!(again.turn, held.turn);
        let _ = store.leave(&key, &crate::test_support::leave("t1")).await;
    }
    eventually("the other one gets the turn", async || {
        let worker = make::worker("v:1");
        drop(
            store
                .wait_for_events(&worker, Duration::from_millis(200))
                .await,
        );
        let asked = store
            .enter(&key, &crate::test_support::enter("v:1", "t2"))
            .await;
        asked.is_ok_and(|entered| entered.turn.is_some())
    })
    .await;
}
