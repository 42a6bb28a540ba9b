//! Replies as the server sends them, and a server that has no module, does not answer, or goes and comes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod cluster;
mod events;
mod failover;
mod fallback_list;
mod known;
mod older_module;
mod refused_clients;
mod replies;
mod sentinels;
mod urls;

use std::time::{Duration, Instant};

use mooring_session::names::ServerName;
use mooring_session::refusal::Refusal;
use mooring_session::view::BindingState;
use redis::Value;

use super::{LinkState, RedisStore, reply};
use crate::error::{OpenError, StoreError, UnavailableReason};
use crate::key::InitDigest;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, PATIENCE, RedisServer, eventually, redis_url};

const TIMEOUT: Duration = Duration::from_secs(2);

async fn open(server: &RedisServer) -> Result<RedisStore, OpenError> {
    RedisStore::open(&redis_url(&server.url()), make::PREFIX, TIMEOUT).await
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn binding_fields() -> Vec<(Value, Value)> {
    vec![
        (text("later_field"), text("x")),
        (text("state"), text("orphaned")),
        (text("instance"), text("http://127.0.0.1:1/mcp")),
        (text("server"), text("tools")),
        (text("upstream_session"), Value::Nil),
        (text("owner"), text("w:1")),
        (text("owner_alive"), Value::Int(0)),
        (text("owner_address"), text("127.0.0.1:9")),
        (text("driver"), text("w:1")),
        (text("epoch"), Value::Int(7)),
    ]
}

fn tools() -> ServerName {
    ServerName::parse(b"tools").unwrap()
}

fn flat(fields: Vec<(Value, Value)>) -> Value {
    Value::Array(fields.into_iter().flat_map(<[Value; 2]>::from).collect())
}

#[test]
fn a_binding_reads_the_same_as_a_map_and_flat_and_in_any_order() {
    let from_map = reply::routed(Value::Map(binding_fields()), &tools()).unwrap();
    let mut reversed = binding_fields();
    reversed.reverse();
    assert_eq!(reply::routed(flat(reversed), &tools()).unwrap(), from_map);
    let view = from_map.binding.unwrap();
    assert_eq!((view.state, view.epoch), (BindingState::Orphaned, 7));
    assert_eq!((view.upstream_session, view.lease_until), (None, None));
    let owner = view.owner.unwrap();
    assert_eq!(
        (owner.alive, owner.address.as_deref()),
        (false, Some("127.0.0.1:9"))
    );
    assert_eq!(from_map.worker_lost, None);
}

#[test]
fn an_unbound_route_says_only_so() {
    let reply = reply::routed(flat(vec![(text("state"), text("unbound"))]), &tools()).unwrap();
    assert_eq!(reply.binding, None);
}

#[test]
fn what_does_not_read_names_the_field_and_never_its_value() {
    for (field, value) in [
        ("epoch", text("secret")),
        ("epoch", Value::Int(-1)),
        ("state", text("secret")),
        ("instance", Value::Nil),
        ("server", text("sec ret")),
    ] {
        let mut fields = binding_fields();
        for pair in &mut fields {
            if pair.0 == text(field) {
                pair.1 = value.clone();
            }
        }
        let problem = reply::binding(Value::Map(fields)).unwrap_err();
        assert!(
            problem.contains(field) && !problem.contains("sec"),
            "{problem}"
        );
    }
    assert!(reply::binding(Value::Int(1)).is_err());
    assert!(reply::binding(Value::Array(vec![text("state")])).is_err());
}

#[tokio::test]
async fn a_server_without_the_module_is_refused_by_name() {
    let server = RedisServer::start(Module::Absent);
    let refused = open(&server).await.unwrap_err();
    assert!(
        matches!(&refused, OpenError::Redis(text) if text.contains("without the mooring module"))
    );
    assert!(refused.to_string().contains("--loadmodule"));
}

#[tokio::test]
async fn initialize_params_live_in_a_plain_key() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let digest = InitDigest::of("{}");
    assert_eq!(store.get_init(&digest).await.unwrap(), None);
    let keep = mooring_session::time::Millis::new(60_000);
    store.put_init(&digest, "{}", keep).await.unwrap();
    assert_eq!(
        store.get_init(&digest).await.unwrap().as_deref(),
        Some("{}")
    );
    let key = format!("mcpgw:init:{}", digest.as_str());
    assert!(matches!(
        server.command(&["PTTL", &key]),
        Value::Int(1..=60_000)
    ));
}

#[tokio::test]
async fn a_server_that_goes_and_comes_is_noticed_and_never_waited_for() {
    let mut server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    server.kill();
    let asked = Instant::now();
    let answer = store.run(&key, &make::route()).await;
    assert!(matches!(answer, Err(StoreError::Away(_))), "{answer:?}");
    assert!(asked.elapsed() < PATIENCE);
    let link = store.watch();
    eventually("known to be away", async || {
        matches!(*link.borrow(), LinkState::Down(_))
    })
    .await;
    assert_eq!(
        store.run(&key, &make::route()).await,
        Err(StoreError::Away(UnavailableReason::Disconnected))
    );
    server.start_again();
    eventually("back", async || {
        store.run(&key, &make::route()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_is_cut_costs_no_answer() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    store.run(&key, &make::route()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_away_in_time() {
    let server = RedisServer::start(Module::Loaded);
    let store = open(&server).await.unwrap();
    let key = make::key("s");
    store.run(&key, &make::create("s")).await.unwrap();
    server.command(&["CLIENT", "PAUSE", "5000", "ALL"]);
    let asked = Instant::now();
    let answer = store.run(&key, &make::route()).await;
    assert!(matches!(answer, Err(StoreError::Away(_))), "{answer:?}");
    assert!(asked.elapsed() < PATIENCE);
    eventually("back", async || {
        store.run(&key, &make::route()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_unix_socket_and_resp3_serve_as_well() {
    let server = RedisServer::start(Module::Loaded);
    let key = make::key("s");
    for url in [
        server.unix_url(),
        format!("{}/?protocol=resp3", server.url()),
    ] {
        let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
            .await
            .unwrap();
        store.run(&key, &make::create("s")).await.unwrap();
        store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
        let routed = store.run(&key, &make::route()).await.unwrap();
        assert_eq!(routed.binding.unwrap().instance, make::instance("i"));
        let foreign = mooring_session::rules::RouteRequest {
            principal: make::principal("bob"),
            ..make::route()
        };
        assert_eq!(
            store.run(&key, &foreign).await,
            Err(StoreError::Refused(Refusal::Denied))
        );
    }
}

#[tokio::test]
async fn a_server_without_tls_is_unreachable_over_tls() {
    let server = RedisServer::start(Module::Loaded);
    let url = format!("rediss://127.0.0.1:{}", server.port);
    let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap();
    assert!(matches!(*store.watch().borrow(), LinkState::Down(_)));
}

#[tokio::test]
async fn an_unreachable_server_is_no_error_at_open() {
    let mut server = RedisServer::start(Module::Loaded);
    server.kill();
    let store = open(&server).await.unwrap();
    assert!(matches!(*store.watch().borrow(), LinkState::Down(_)));
}
