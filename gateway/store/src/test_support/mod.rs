//! Shared parts of the tests of stores and of their users: stores of every kind, a Redis of the test's own, and
//! requests with defaults for everything that a test does not care about. Built for tests alone (feature
//! `test-support`).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking, and their names say what these make"
)]

pub mod requests;
pub mod server;

use std::path::Path;
use std::time::Duration;

use mooring_session::time::Millis;
use mooring_settings::ModuleUse;

use self::requests::PREFIX;
use self::server::{RedisServer, eventually};
use crate::clock::Clock;
use crate::embedded::EmbeddedStore;
use crate::store::Backend;
use crate::{
    EnterRequest, LeaveRequest, LeaveTarget, Line, OpenError, SessionQuery, Store, StoreOptions,
    StorePlace, TurnScope, WhenAway, open_with,
};

/// A store without a file, with the machine's clock.
#[must_use]
pub fn memory_store() -> Store {
    memory(Clock::system())
}

/// A store in this file, with the machine's clock.
#[must_use]
pub fn embedded_store(path: &Path) -> Store {
    embedded(path, Clock::system())
}

/// A store in this server, by its module.
pub async fn redis_store(server: &RedisServer) -> Store {
    open_redis(&server.url(), ModuleUse::Required)
        .await
        .unwrap()
}

/// A store in this server, without its module.
pub async fn scripted_store(server: &RedisServer) -> Store {
    let store = open_redis(&server.url(), ModuleUse::Unused).await.unwrap();
    eventually("the indexes are complete", async || {
        let page = store.list(&SessionQuery::default()).await;
        page.is_ok_and(|page| page.complete)
    })
    .await;
    store
}

pub async fn open_redis(url: &str, module: ModuleUse) -> Result<Store, OpenError> {
    let options = StoreOptions {
        place: StorePlace::Redis {
            url: server::redis_url(url),
            module,
            when_away: WhenAway::Fail,
        },
        key_prefix: PREFIX.to_owned(),
        command_timeout: Duration::from_secs(5),
        session_ttl: Duration::from_secs(3_600),
        history_entries_max: 64,
    };
    open_with(&options).await
}

pub(crate) fn memory(clock: Clock) -> Store {
    local(EmbeddedStore::in_memory(clock, PREFIX).unwrap())
}

pub(crate) fn embedded(path: &Path, clock: Clock) -> Store {
    local(EmbeddedStore::open(path, clock, PREFIX).unwrap())
}

fn local(store: EmbeddedStore) -> Store {
    Store::new(Backend::Embedded(store), PREFIX, Millis::new(3_600_000), 64)
}

/// Waits until the store grants turns: after a start none is granted for as long as one of before may last.
pub async fn turns_are_given(store: &Store) {
    let key = requests::key("quiet");
    store
        .create(&key, &requests::create("quiet"))
        .await
        .unwrap();
    let ask = enter("w:1", "quiet");
    eventually("a turn is given", async || {
        store.enter(&key, &ask).await.unwrap().turn.is_some()
    })
    .await;
    store.leave(&key, &leave("quiet")).await.unwrap();
    store.end(&key, &requests::end()).await.unwrap();
}

pub fn enter(worker: &str, ticket: &str) -> EnterRequest {
    EnterRequest {
        principal: requests::principal("alice"),
        server: requests::server("tools"),
        worker: requests::worker(worker),
        ticket: requests::token(ticket),
        lease: Millis::new(2_000),
        line: Line::Last,
        scope: TurnScope::Call,
        held: None,
    }
}

pub fn leave(ticket: &str) -> LeaveRequest {
    LeaveRequest {
        principal: requests::principal("alice"),
        server: requests::server("tools"),
        who: LeaveTarget::Ticket(requests::token(ticket)),
    }
}
