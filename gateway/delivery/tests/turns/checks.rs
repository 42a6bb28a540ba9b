//! What is promised, and the exceptions.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::names::WorkerId;

use crate::calls::{Call, LEASE};
use crate::faults::Hindrance;
use crate::gateway::worker_id;
use crate::store::BEAT_TTL;
use crate::world::{GATEWAYS, MS, World};

/// How long after a caller began to wait, or a session ended or moved, no further call begins under the delegation.
pub(crate) const RECALLED_WITHIN: u64 = 300 * MS;
/// How late a gateway may learn that its connection for events has closed.
const LOSS_LEARNT_WITHIN: u64 = 150 * MS;

/// Why a call may run while another one is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    /// It outlives its lease, because its gateway could not renew it.
    Lease,
    /// The store counted its gateway as dead.
    Dead,
    /// The store closed the connection for events, and its gateway learned of it late or could not ask.
    Connection,
    /// It was cancelled a second ago.
    Cancelled,
}

#[derive(Default)]
pub(crate) struct Checks {
    /// The calls at upstream servers whose gateway lives.
    pub(crate) running: BTreeSet<u64>,
    hindrances: Vec<(usize, Hindrance, u64, u64)>,
    /// Since when a delegation is to be recalled.
    recall_due: BTreeMap<(usize, u64), u64>,
    /// The recalled delegations of a gateway, each with the call that ran then.
    recalled: BTreeMap<(usize, u64), Option<u64>>,
    /// The delegations that the store ended with a connection, and when that closed.
    ended: BTreeMap<(usize, u64), u64>,
    learnt: BTreeMap<usize, u64>,
    died: BTreeMap<WorkerId, u64>,
}

impl Checks {
    pub(crate) fn hinder(&mut self, gateway: usize, hindrance: Hindrance, from: u64, until: u64) {
        self.hindrances.push((gateway, hindrance, from, until));
    }

    fn was_hindered(&self, gateway: usize, hindrance: Hindrance, since: u64, now: u64) -> bool {
        self.hindrances.iter().any(|(who, what, from, until)| {
            *who == gateway && *what == hindrance && *from <= now && since <= *until
        })
    }

    pub(crate) fn recall_due(&mut self, session: usize, number: u64, now: u64) {
        self.recall_due.entry((session, number)).or_insert(now);
    }

    /// A recall has reached the gateway.
    pub(crate) fn recalled(&mut self, gateway: usize, number: u64, running: Option<u64>) {
        self.recalled.entry((gateway, number)).or_insert(running);
    }

    /// A call gets a turn that is delegated.
    pub(crate) fn begins_under(&self, gateway: usize, number: u64, call: u64) {
        let current = self.recalled.get(&(gateway, number));
        assert!(
            current.is_none_or(|current| *current == Some(call)),
            "call {call} begins under the delegation {number}, which was recalled"
        );
    }

    pub(crate) fn ended_by_store(&mut self, session: usize, number: u64, closed: u64) {
        self.ended.insert((session, number), closed);
    }

    pub(crate) fn learnt_of_loss(&mut self, gateway: usize, now: u64) {
        self.learnt.insert(gateway, now);
    }
}

impl World {
    pub(crate) fn note_deaths(&mut self) {
        for gateway in 0..GATEWAYS {
            let worker = worker_id(gateway, self.gateways[gateway].life);
            if !self.store.is_alive(&worker, self.now) {
                self.checks.died.insert(worker, self.now);
            }
        }
    }

    /// A call leaves its gateway: no other call of its session runs, but for the exceptions.
    pub(crate) fn check_written(&mut self, id: u64) {
        self.note_deaths();
        let call = &self.calls[&id];
        self.check_recalled(call);
        let others = self.checks.running.iter().map(|other| &self.calls[other]);
        let mut outlived = Vec::new();
        for other in others {
            if other.session != call.session || other.generation != call.generation {
                continue;
            }
            match self
                .exception(other)
                .or_else(|| self.outlived_connection(call))
            {
                Some(exception) => outlived.push(exception),
                None => panic!(
                    "call {id} at g{} is written while call {} runs at g{}: turns {:?} and {:?}",
                    call.gateway, other.id, other.gateway, call.turn, other.turn
                ),
            }
        }
        self.show(|| format!("call {id}: written"));
        for exception in outlived {
            self.note(match exception {
                Exception::Lease => "outlived its lease",
                Exception::Dead => "outlived its gateway's life",
                Exception::Connection => "outlived its connection",
                Exception::Cancelled => "outlived its cancellation",
            });
        }
        self.checks.running.insert(id);
    }

    fn exception(&self, running: &Call) -> Option<Exception> {
        let now = self.now;
        let gateway = running.gateway;
        if running.cancelled_at.is_some_and(|at| at + 990 * MS <= now) {
            return Some(Exception::Cancelled);
        }
        let turn = running.turn.as_ref().or(running.lost.as_ref())?;
        let hindered = |since| (self.checks).was_hindered(gateway, Hindrance::Commands, since, now);
        if turn.sent + LEASE <= now && hindered(turn.sent) {
            return Some(Exception::Lease);
        }
        let worker = worker_id(gateway, running.life);
        let died = self.checks.died.get(&worker);
        if died.is_some_and(|at| turn.sent <= *at && hindered(at - BEAT_TTL.get() * MS)) {
            return Some(Exception::Dead);
        }
        self.outlived_connection(running)
    }

    /// Its delegation was ended by the store, and its gateway could not know.
    fn outlived_connection(&self, call: &Call) -> Option<Exception> {
        let turn = call.turn.as_ref().or(call.lost.as_ref())?;
        let closed = *self.checks.ended.get(&(call.session, turn.number))?;
        let learnt = self.checks.learnt.get(&call.gateway);
        let is_late = learnt.is_none_or(|at| *at < closed || *at > closed + LOSS_LEARNT_WITHIN);
        let hindered =
            (self.checks).was_hindered(call.gateway, Hindrance::Commands, closed, self.now);
        (is_late || hindered).then_some(Exception::Connection)
    }

    /// The store has ended a delegation with its connection: a call that runs under it should have kept its turn.
    pub(crate) fn check_kept(&self, session: usize, number: u64) {
        for id in &self.checks.running {
            let call = &self.calls[id];
            let turn = call.turn.as_ref().filter(|turn| turn.number == number);
            assert!(
                call.session != session || turn.is_none() || self.exception(call).is_some(),
                "call {id} has not kept its turn, and its gateway has lost its connection"
            );
        }
    }

    fn check_recalled(&self, call: &Call) {
        let Some(turn) = call.turn.as_ref().filter(|_| call.is_delegated) else {
            return;
        };
        let due = self.checks.recall_due.get(&(call.session, turn.number));
        let Some(due) = due.copied() else {
            return;
        };
        let gateway = call.gateway;
        let was_hindered = [Hindrance::Commands, Hindrance::Events]
            .iter()
            .any(|what| (self.checks).was_hindered(gateway, *what, due, self.now));
        assert!(
            was_hindered || self.now < due + RECALLED_WITHIN,
            "call {} is written under the delegation {}, which was to be recalled at {due}",
            call.id,
            turn.number
        );
    }

    pub(crate) fn check_delegation_is_over(&mut self, session: usize, number: u64) {
        let known = self.store.delegation(session, self.now);
        assert!(
            known.is_none_or(|(other, ..)| other != number),
            "the delegation {number} of a killed gateway outlives its connection"
        );
    }

    pub(crate) fn check_nothing_is_left(&mut self) {
        assert!(
            self.calls.is_empty(),
            "{} calls have not ended",
            self.calls.len()
        );
        for gateway in &self.gateways {
            assert!(gateway.delegations.is_empty(), "a table is not empty");
            assert!(gateway.delegated.is_empty());
        }
        assert!(self.store.is_empty(self.now), "a turn is still held");
    }
}
