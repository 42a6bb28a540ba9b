//! Requests with everything that a test does not care about filled in.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use mooring_session::names::{
    Address, ContentHash, InstanceName, Principal, ServerName, SessionId, Token, UpstreamSession,
    WorkerId,
};
use mooring_session::rules::{
    BindRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest, LossReport, Ownership,
    RebindRequest, Revival, RouteRequest,
};
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Drain};

use crate::key::SessionKey;

pub const PREFIX: &str = "mcpgw:";

pub fn id(text: &str) -> SessionId {
    SessionId::parse(text.as_bytes()).unwrap()
}

pub fn key(text: &str) -> SessionKey {
    SessionKey::mcp(PREFIX, &id(text))
}

/// The key of a code session of `user`.
pub fn code_key(user: &str) -> SessionKey {
    let id = id("0123456789abcdef01234567");
    SessionKey::code(PREFIX, &server("sandbox"), user, "python", &id).unwrap()
}

/// The key of an agent session of `user` for a parent.
pub fn agent_key(user: &str, parent: &str) -> SessionKey {
    let id = id("0123456789abcdef01234567");
    SessionKey::agent(PREFIX, &server("coder"), user, parent, &id).unwrap()
}

/// The creation of the session under the key of a code session.
pub fn code_create() -> CreateRequest {
    CreateRequest {
        content_hash: Some(ContentHash::parse(b"9f86d081").unwrap()),
        ..create("0123456789abcdef01234567")
    }
}

pub fn principal(text: &str) -> Principal {
    Principal::parse(text.as_bytes()).unwrap()
}

pub fn server(text: &str) -> ServerName {
    ServerName::parse(text.as_bytes()).unwrap()
}

pub fn worker(text: &str) -> WorkerId {
    WorkerId::parse(text.as_bytes()).unwrap()
}

pub fn token(text: &str) -> Token {
    Token::parse(text.as_bytes()).unwrap()
}

pub fn instance(text: &str) -> InstanceName {
    InstanceName::parse(text.as_bytes()).unwrap()
}

pub fn upstream(text: &str) -> UpstreamSession {
    UpstreamSession::parse(text.as_bytes()).unwrap()
}

pub fn create(session: &str) -> CreateRequest {
    CreateRequest {
        id: id(session),
        principal: principal("alice"),
        ttl: Millis::new(3_600_000),
        content_hash: None,
        labels: BTreeMap::new(),
        revival: Revival::Allowed,
        cap: None,
    }
}

pub fn end() -> EndRequest {
    EndRequest {
        principal: Some(principal("alice")),
        when: EndCondition::Always,
    }
}

pub fn route() -> RouteRequest {
    RouteRequest {
        principal: principal("alice"),
        server: server("tools"),
        worker: worker("w:1"),
    }
}

/// A bind that is bound at once.
pub fn bind(attempt: &str, at: &str, upstream_session: &str) -> BindRequest {
    BindRequest {
        principal: principal("alice"),
        server: server("tools"),
        worker: worker("w:1"),
        token: token(attempt),
        lease: Millis::new(60_000),
        instances: vec![instance(at)],
        upstream_session: Some(upstream(upstream_session)),
        ownership: Ownership::Shared,
    }
}

pub fn rebind(epoch: u64, attempt: &str, to: &str) -> RebindRequest {
    RebindRequest {
        principal: principal("alice"),
        server: server("tools"),
        epoch,
        worker: worker("w:1"),
        token: token(attempt),
        lease: Millis::new(60_000),
        instances: vec![instance(to)],
        avoid: None,
        reason: None,
        upstream_session: None,
        ownership: Ownership::Shared,
        report: LossReport::ByCaller,
    }
}

pub fn confirm(epoch: u64, attempt: &str, upstream_session: &str) -> ConfirmRequest {
    ConfirmRequest {
        principal: principal("alice"),
        server: server("tools"),
        epoch,
        token: token(attempt),
        upstream_session: Some(upstream(upstream_session)),
    }
}

pub fn beat(name: &str, ttl_ms: u64) -> Beat {
    Beat {
        worker: worker(name),
        address: Address::parse(b"127.0.0.1:9").unwrap(),
        ttl: Millis::new(ttl_ms),
        drain: Drain::Serving,
    }
}
