//! The states that a record can be in when a command meets it, each made by the commands that lead there.
//!
//! The record is alice's; `holder:1` bound it with the token `held`; the commands under test come from `caller:1`
//! with the token `mine`. Nothing is due to be written by a mere use at [`NOW`].

use std::collections::BTreeMap;

use mooring_session::Liveness;
use mooring_session::names::WorkerId;
use mooring_session::record::Record;
use mooring_session::rules::{
    BindRequest, ClaimRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest, LossReport,
    Ownership, RebindRequest, Revival, RouteRequest, TouchRequest, UnbindRequest,
};
use mooring_session::time::{Millis, Timestamp};

use crate::run_on;
use crate::support::{Command, instance, principal, server, session_id, token, upstream, worker};

pub(crate) const KEY: &[u8] = b"mcpgw:session_affinity:s1";
/// The moment of every command under test, in milliseconds.
pub(crate) const NOW: u64 = 1_000_000;

/// The first number that is given at this time, in milliseconds.
pub(crate) const fn number_at(unix_ms: u64) -> u64 {
    Timestamp::from_unix_ms(unix_ms).least_number()
}

/// The session's time to live: a touch is written after a sixteenth of it, 1000 ms.
pub(crate) const TTL: Millis = Millis::new(16_000);
/// The epoch of the binding in every state that has one.
pub(crate) const EPOCH: u64 = number_at(NOW - 400);
/// The generation of the record, except in the states named expired.
pub(crate) const GENERATION: u64 = number_at(NOW - 500);
/// The generation of the record in the states named expired.
pub(crate) const EXPIRED_GENERATION: u64 = number_at(NOW - 20_000);

/// What a command may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// In use, with nothing bound.
    Active,
    Expired,
    /// Expired with one binding.
    ExpiredBound,
    Ended,
    /// Ended with one binding.
    EndedBound,
    /// Ended, the caller of END had its time to clean up, and `holder:1` has taken the cleaning over.
    Cleaned,
    /// Being initialized.
    Claimed,
    /// The claim's lease has lapsed.
    Lapsed,
    Bound,
    /// Bound by a worker that has died since.
    BoundByTheDead,
    Owned,
    OwnedByTheDead,
    OwnedByTheDraining,
    /// Claimed for an owner that is alive; the lease has lapsed.
    OwnedLapsed,
}

/// Everybody lives, but for workers named `dead`; those named `draining` drain.
pub(crate) struct Crew;

impl Liveness for Crew {
    fn is_alive(&self, worker: &str) -> bool {
        WorkerId::name_of(worker) != "dead"
    }

    fn is_draining(&self, worker: &str) -> bool {
        WorkerId::name_of(worker) == "draining"
    }

    fn address(&self, worker: &str) -> Option<&str> {
        (WorkerId::name_of(worker) == "holder").then_some("10.0.0.1:4000")
    }
}

pub(crate) const fn at(now: u64) -> Timestamp {
    Timestamp::from_unix_ms(now)
}

pub(crate) fn slot_in(state: State) -> Option<Record> {
    let mut slot = None;
    let expired = matches!(state, State::Expired | State::ExpiredBound);
    let back = if expired { 19_500 } else { 0 };
    if state == State::Absent {
        return slot;
    }
    run_on(&mut slot, &create(), NOW - 500 - back).unwrap();
    let holder = match state {
        State::BoundByTheDead | State::OwnedByTheDead => "dead:1",
        State::OwnedByTheDraining => "draining:1",
        _ => "holder:1",
    };
    let ownership = match state {
        State::Owned | State::OwnedByTheDead | State::OwnedByTheDraining | State::OwnedLapsed => {
            Ownership::Owned
        }
        _ => Ownership::Shared,
    };
    let lease = match state {
        State::Lapsed | State::OwnedLapsed => 350,
        _ => 5_000,
    };
    if !matches!(state, State::Active | State::Expired | State::Ended) {
        put_binding(&mut slot, holder, ownership, lease, NOW - 400 - back);
    }
    if !matches!(
        state,
        State::Active
            | State::Expired
            | State::Ended
            | State::Claimed
            | State::Lapsed
            | State::OwnedLapsed
    ) {
        let confirm = confirm_as("held", number_at(NOW - 400 - back), Some("u1"));
        run_on(&mut slot, &confirm, NOW - 300 - back).unwrap();
    }
    match state {
        State::Ended | State::EndedBound => {
            run_on(&mut slot, &end(), NOW - 200).unwrap();
        }
        State::Cleaned => {
            run_on(&mut slot, &end(), NOW - 200).unwrap();
            slot.as_mut().unwrap().cleaning = None;
            run_on(&mut slot, &claim_by("holder:1"), NOW - 100).unwrap();
        }
        _ => {}
    }
    slot
}

/// A draining worker bound it before it began to drain, so the binding is put in its name afterwards.
fn put_binding(
    slot: &mut Option<Record>,
    holder: &str,
    ownership: Ownership,
    lease: u64,
    now: u64,
) {
    let bind = BindRequest {
        worker: worker("holder:1"),
        token: token("held"),
        lease: Millis::new(lease),
        ownership,
        ..a_bind()
    };
    run_on(slot, &Command::Bind(bind), now).unwrap();
    for binding in slot.as_mut().unwrap().bindings.values_mut() {
        binding.driver = worker(holder);
        binding.owner = binding.owner.take().map(|_| worker(holder));
    }
}

pub(crate) fn create() -> Command {
    Command::Create(a_create())
}

pub(crate) fn a_create() -> CreateRequest {
    CreateRequest {
        id: session_id("s1"),
        principal: principal("alice"),
        ttl: TTL,
        content_hash: None,
        labels: BTreeMap::new(),
        revival: Revival::Allowed,
        cap: None,
    }
}

pub(crate) fn a_touch() -> TouchRequest {
    TouchRequest {
        principal: principal("alice"),
        ttl: None,
        content_hash: None,
        labels: BTreeMap::new(),
        reported: None,
    }
}

pub(crate) fn route_by(name: &str) -> Command {
    Command::Route(RouteRequest {
        principal: principal("alice"),
        server: server("tools"),
        worker: worker(name),
    })
}

/// The instance `a` alone, so that a binding's instance is known.
pub(crate) fn a_bind() -> BindRequest {
    BindRequest {
        principal: principal("alice"),
        server: server("tools"),
        worker: worker("caller:1"),
        token: token("mine"),
        lease: Millis::new(5_000),
        instances: vec![instance("a")],
        upstream_session: None,
        ownership: Ownership::Shared,
    }
}

pub(crate) fn confirm_as(by: &str, epoch: u64, session: Option<&str>) -> Command {
    Command::Confirm(ConfirmRequest {
        principal: principal("alice"),
        server: server("tools"),
        epoch,
        token: token(by),
        upstream_session: session.map(upstream),
    })
}

pub(crate) fn a_rebind() -> RebindRequest {
    RebindRequest {
        principal: principal("alice"),
        server: server("tools"),
        epoch: EPOCH,
        worker: worker("caller:1"),
        token: token("mine"),
        lease: Millis::new(5_000),
        instances: vec![instance("a"), instance("b")],
        avoid: None,
        reason: None,
        upstream_session: None,
        ownership: Ownership::Shared,
        report: LossReport::ByCaller,
    }
}

pub(crate) fn unbind_as(by: Option<&str>, epoch: u64) -> Command {
    Command::Unbind(UnbindRequest {
        principal: principal("alice"),
        server: server("tools"),
        epoch,
        token: by.map(token),
    })
}

pub(crate) fn end() -> Command {
    Command::End(EndRequest {
        principal: Some(principal("alice")),
        when: EndCondition::Always,
    })
}

pub(crate) fn claim_by(name: &str) -> Command {
    Command::Claim(ClaimRequest {
        worker: worker(name),
        lease: Millis::new(5_000),
    })
}
