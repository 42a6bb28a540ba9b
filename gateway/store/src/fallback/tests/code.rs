//! Code sessions during an outage and after it: served by every worker, whatever it knows of them, and none of them over
//! that was in use.

use std::time::{SystemTime, UNIX_EPOCH};

use mooring_session::names::ContentHash;
use mooring_session::record::SessionState;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{ClaimRequest, CreateRequest, TouchRequest};
use mooring_session::time::Millis;

use super::{open, return_to_normal};
use crate::test_support::requests as make;
use crate::test_support::server::{Module, RedisServer, eventually};
use crate::{AnsweredBy, EnterRequest, Family, Line, Store, StoreError, TurnScope, WhenAway};

const USER: &str = "zoe-0011223344556677";

fn touch() -> TouchRequest {
    TouchRequest {
        principal: make::principal("alice"),
        ttl: None,
        content_hash: Some(ContentHash::parse(b"2c26b46b").unwrap()),
        labels: std::collections::BTreeMap::new(),
        reported: None,
    }
}

fn enter() -> EnterRequest {
    EnterRequest {
        principal: make::principal("alice"),
        server: make::server("sandbox"),
        worker: make::worker("w:1"),
        ticket: make::token("t1"),
        lease: Millis::new(2_000),
        line: Line::Last,
        scope: TurnScope::Call,
        held: None,
    }
}

/// A Redis in which another worker has made the session, and a store that has not heard of it.
async fn unread() -> (RedisServer, Store) {
    let server = RedisServer::start(Module::Loaded);
    let other = open(&server, WhenAway::Fail).await;
    let key = make::code_key(USER);
    other.create(&key, &make::code_create()).await.unwrap();
    let store = open(&server, WhenAway::Fallback).await;
    (server, store)
}

/// What Redis holds, as a worker sees it that was not there.
async fn state(server: &RedisServer) -> SessionState {
    let other = open(server, WhenAway::Fail).await;
    other.get(&make::code_key(USER)).await.unwrap().state
}

#[tokio::test]
async fn it_is_served_whether_it_was_read_before_or_not() {
    let key = make::code_key(USER);
    let (mut server, store) = unread().await;
    server.kill();
    // In whatever order the commands of a request come: the outage may begin between any two.
    store.touch(&key, &touch()).await.unwrap();
    let entered = store.enter(&key, &enter()).await.unwrap();
    assert_eq!(entered.answered_by, AnsweredBy::Memory);
    // Redis is away, so memory answers.
    store.create(&key, &make::code_create()).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().state, SessionState::Active);
    let clean = ClaimRequest {
        worker: make::worker("w:1"),
        lease: Millis::new(1_000),
    };
    let claimed = store.claim(&key, &clean).await;
    assert!(matches!(claimed, Err(StoreError::Away(_))), "{claimed:?}");

    return_to_normal(&mut server, &store).await;
    assert_eq!(state(&server).await, SessionState::Active);
    let created = store.create(&key, &make::code_create()).await.unwrap();
    assert!(!created.created);
    // The record is that of the other worker, and its hash what this one set.
    assert!(created.hash_changed);
}

#[tokio::test]
async fn one_that_was_made_meanwhile_is_there_afterwards() {
    let key = make::code_key(USER);
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    server.kill();
    let minted = store.create(&key, &make::code_create()).await.unwrap();
    assert!(minted.created);
    return_to_normal(&mut server, &store).await;
    assert_eq!(state(&server).await, SessionState::Active);
    assert!(
        !store
            .create(&key, &make::code_create())
            .await
            .unwrap()
            .created
    );
}

#[tokio::test]
async fn one_that_was_in_use_is_not_reaped_because_redis_saw_it_expire() {
    let key = make::code_key(USER);
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server, WhenAway::Fallback).await;
    let short = CreateRequest {
        ttl: Millis::new(1_000),
        ..make::code_create()
    };
    let before = store.create(&key, &short).await.unwrap().record;
    server.kill();
    // The stored deadline is later than the one that is told, by a touch step at most.
    let lapsed_ms = u128::from(before.expires_at.plus(short.ttl).unix_ms());
    eventually("its deadline passes", async || {
        store.create(&key, &short).await.unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_millis() > lapsed_ms
    })
    .await;
    store.create(&key, &make::code_create()).await.unwrap();
    return_to_normal(&mut server, &store).await;
    assert_eq!(state(&server).await, SessionState::Active);
    let worker = make::worker("w:1");
    assert_eq!(store.reap(&worker, Family::Code, 10).await, Ok(Vec::new()));
    let now = store.get(&key).await.unwrap();
    assert!(now.generation > before.generation);
}

#[tokio::test]
async fn one_that_was_ended_meanwhile_is_over_afterwards() {
    let key = make::code_key(USER);
    let (mut server, store) = unread().await;
    server.kill();
    assert!(store.end(&key, &make::end()).await.unwrap().ended_now);
    assert_eq!(
        store.touch(&key, &touch()).await,
        Err(StoreError::Refused(Refusal::Ended))
    );
    return_to_normal(&mut server, &store).await;
    assert_eq!(state(&server).await, SessionState::Ended);
    let created = store.create(&key, &make::code_create()).await.unwrap();
    assert_eq!(created.revived, Some(SessionState::Ended));
}
