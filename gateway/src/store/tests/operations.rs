//! Random operations over few names, so that they meet each other, and one store that carries them out.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use mooring_session::names::{ContentHash, LabelName, LabelValue, Reason};
use mooring_session::rules::{EndWhen, Ownership, Revival, Touch, Unbind};
use mooring_session::time::Millis;
use mooring_session::workers::Drain;
use proptest::prelude::*;

use super::requests as make;
use crate::store::{Store, StoreError};

/// One operation, its names as small numbers.
#[derive(Clone, Debug)]
pub(in crate::store) struct Operation {
    kind: Kind,
    session: u8,
    principal: u8,
    server: u8,
    worker: u8,
    token: u8,
    instance: u8,
    /// Options of the kind, bit by bit.
    flags: u8,
}

impl Operation {
    /// How much time passes, in milliseconds: from within a touch step to past the end of a tombstone.
    pub(in crate::store) fn waits_ms(&self) -> u64 {
        let waits = [1_000, 300_000, 3_700_000, 9_000_000];
        let wait = waits.get(usize::from(self.flags & 3)).copied();
        wait.filter(|_| self.kind == Kind::Wait).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Touch,
    Get,
    End,
    Route,
    Bind,
    Confirm,
    Rebind,
    Unbind,
    Beat,
    Gone,
    Wait,
}

/// Sequences of operations; those that build something up come more often than those that tear it down.
pub(in crate::store) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let kind = prop_oneof![
        4 => Just(Kind::Create),
        1 => Just(Kind::Touch),
        1 => Just(Kind::Get),
        1 => Just(Kind::End),
        4 => Just(Kind::Route),
        4 => Just(Kind::Bind),
        3 => Just(Kind::Confirm),
        3 => Just(Kind::Rebind),
        1 => Just(Kind::Unbind),
        2 => Just(Kind::Beat),
        1 => Just(Kind::Gone),
        2 => Just(Kind::Wait),
    ];
    // One principal in eight is a stranger.
    let names = (0..2_u8, 0..8_u8, 0..2_u8, 0..3_u8, 0..3_u8, 0..2_u8);
    let operation = (kind, names, any::<u8>()).prop_map(|(kind, names, flags)| {
        let (session, principal, server, worker, token, instance) = names;
        Operation {
            kind,
            session,
            principal,
            server,
            worker,
            token,
            instance,
            flags,
        }
    });
    proptest::collection::vec(operation, 1..60)
}

/// A store under test, and the epochs it gave: a caller passes on what it was told.
pub(in crate::store) struct Side<'a> {
    pub(in crate::store) store: &'a Store,
    /// What keeps one run apart from others in the same store.
    pub(in crate::store) run: u64,
    epochs: BTreeMap<(u8, u8), u64>,
}

impl<'a> Side<'a> {
    pub(in crate::store) fn new(store: &'a Store, run: u64) -> Self {
        Self {
            store,
            run,
            epochs: BTreeMap::new(),
        }
    }

    /// Carries it out, and answers with everything that was answered, as text.
    pub(in crate::store) async fn apply(&mut self, op: &Operation) -> String {
        let key = make::key(&self.session(op));
        let store = self.store;
        match op.kind {
            Kind::Create => told(&store.create(&key, &self.create(op)).await),
            Kind::Touch => told(&store.touch(&key, &touch(op)).await),
            Kind::Get => told(&store.get(&key).await),
            Kind::End => told(&store.end(&key, &end(op)).await),
            Kind::Route => told(&store.route(&key, &self.route(op)).await),
            Kind::Bind => {
                let reply = store.bind(&key, &self.bind(op)).await;
                self.note(op, reply.as_ref().ok().map(|bound| bound.binding.epoch));
                told(&reply)
            }
            Kind::Confirm => told(&store.confirm(&key, &self.confirm(op)).await),
            Kind::Rebind => {
                let reply = store.rebind(&key, &self.rebind(op)).await;
                self.note(op, reply.as_ref().ok().map(|moved| moved.binding.epoch));
                told(&reply)
            }
            Kind::Unbind => told(&store.unbind(&key, &self.unbind(op)).await),
            Kind::Beat => {
                let mut beat = make::beat(&self.worker(op), 600_000);
                if op.flags & 7 == 0 {
                    beat.drain = Drain::Draining;
                }
                told(&store.beat(&beat).await)
            }
            Kind::Gone => told(&store.gone(&make::worker(&self.worker(op))).await),
            Kind::Wait => String::new(),
        }
    }

    fn note(&mut self, op: &Operation, epoch: Option<u64>) {
        if let Some(epoch) = epoch {
            self.epochs.insert((op.session, op.server), epoch);
        }
    }

    /// Mostly the epoch last seen; sometimes one that never was.
    fn epoch(&self, op: &Operation) -> u64 {
        let known = self.epochs.get(&(op.session, op.server)).copied();
        known.filter(|_| op.flags & 56 != 0).unwrap_or(1)
    }

    fn session(&self, op: &Operation) -> String {
        format!("r{}-{}", self.run, op.session)
    }

    fn worker(&self, op: &Operation) -> String {
        // Two boots of one name, and another name.
        let worker = ["w:1", "w:2", "v:1"].get(usize::from(op.worker)).unwrap();
        format!("r{}-{worker}", self.run)
    }

    fn create(&self, op: &Operation) -> mooring_session::rules::Create {
        mooring_session::rules::Create {
            principal: principal(op),
            ttl: Millis::new(3_600_000),
            content_hash: hash(op),
            labels: labels(op),
            revival: match op.flags & 8 {
                0 => Revival::Allowed,
                _ => Revival::Refused,
            },
            ..make::create(&self.session(op))
        }
    }

    fn route(&self, op: &Operation) -> mooring_session::rules::Route {
        mooring_session::rules::Route {
            principal: principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
        }
    }

    fn bind(&self, op: &Operation) -> mooring_session::rules::Bind {
        mooring_session::rules::Bind {
            principal: principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
            lease: Millis::new(600_000),
            upstream_session: (op.flags & 1 == 0).then(|| make::upstream("u-bind")),
            ownership: ownership(op),
            ..make::bind(&token(op), &instance(op), "u")
        }
    }

    fn confirm(&self, op: &Operation) -> mooring_session::rules::Confirm {
        mooring_session::rules::Confirm {
            principal: principal(op),
            server: server(op),
            upstream_session: (op.flags & 1 == 0).then(|| make::upstream("u-confirm")),
            ..make::confirm(self.epoch(op), &token(op), "u")
        }
    }

    fn rebind(&self, op: &Operation) -> mooring_session::rules::Rebind {
        mooring_session::rules::Rebind {
            principal: principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
            lease: Millis::new(600_000),
            avoid: (op.flags & 2 == 0).then(|| make::instance("i0")),
            reason: (op.flags & 1 == 0).then(|| Reason::parse("it broke %s".as_bytes()).unwrap()),
            ownership: ownership(op),
            ..make::rebind(self.epoch(op), &token(op), &instance(op))
        }
    }

    fn unbind(&self, op: &Operation) -> Unbind {
        Unbind {
            principal: principal(op),
            server: server(op),
            epoch: self.epoch(op),
            token: (op.flags & 1 == 0).then(|| make::token(&token(op))),
        }
    }
}

fn told<R: std::fmt::Debug>(result: &Result<R, StoreError>) -> String {
    format!("{result:?}")
}

fn touch(op: &Operation) -> Touch {
    Touch {
        principal: principal(op),
        ttl: (op.flags & 4 == 0).then(|| Millis::new(7_200_000)),
        content_hash: hash(op),
        labels: labels(op),
    }
}

fn end(op: &Operation) -> mooring_session::rules::End {
    mooring_session::rules::End {
        principal: (op.flags & 1 == 0).then(|| principal(op)),
        // KILL has no IFIDLE.
        when: match op.flags & 3 {
            2 => EndWhen::Idle,
            _ => EndWhen::Always,
        },
    }
}

fn principal(op: &Operation) -> mooring_session::names::Principal {
    make::principal(match op.principal {
        0 => "zoë@example.org",
        _ => "alice",
    })
}

fn server(op: &Operation) -> mooring_session::names::ServerName {
    make::server(match op.server {
        0 => "tools",
        _ => "@get",
    })
}

fn token(op: &Operation) -> String {
    format!("t{}", op.token)
}

fn instance(op: &Operation) -> String {
    format!("i{}", op.instance)
}

fn ownership(op: &Operation) -> Ownership {
    match op.flags & 12 {
        0 => Ownership::Owned,
        _ => Ownership::Shared,
    }
}

fn hash(op: &Operation) -> Option<ContentHash> {
    (op.flags & 16 == 0).then(|| ContentHash::parse(token(op).as_bytes()).unwrap())
}

fn labels(op: &Operation) -> BTreeMap<LabelName, LabelValue> {
    (0..op.flags & 3)
        .map(|n| {
            let name = LabelName::parse(format!("l{n}").as_bytes()).unwrap();
            (name, LabelValue::parse("v \"w\" \\ ü".as_bytes()).unwrap())
        })
        .collect()
}
