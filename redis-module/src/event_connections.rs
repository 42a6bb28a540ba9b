//! Over which connection each worker waits for events, and which workers have lost theirs.
//!
//! Turns and routes are delegated only to workers that can be notified. A worker whose connection has closed loses its
//! delegated turns, unless it waits on another connection within [`DELEGATION_RECONNECT`]. Invariants: a connection is
//! of one worker, that for which it waited last; a worker has one connection, that on which it waited last. What is
//! remembered is bounded. A worker for which there is no room cannot be notified, as far as delegations are concerned.

use std::collections::{BTreeMap, BTreeSet};

use mooring_session::limits::{DELEGATION_RECONNECT, MAILBOXES_MAX};
use mooring_session::names::WorkerId;
use mooring_session::time::Monotonic;

use crate::ffi::ClientId;

/// What is known of a worker's connection.
#[derive(Clone, Copy, Debug)]
enum EventConnection {
    Open {
        client: ClientId,
        /// When the worker last began to wait, or stopped.
        seen: Monotonic,
    },
    Closed {
        /// When the worker loses its delegations.
        until: Monotonic,
    },
}

/// The connections of all workers.
#[derive(Default)]
pub(crate) struct EventConnections {
    by_worker: BTreeMap<WorkerId, EventConnection>,
    /// The workers of the open ones.
    workers: BTreeMap<ClientId, WorkerId>,
    /// The deadlines of the closed ones.
    deadlines: BTreeSet<(Monotonic, WorkerId)>,
}

impl EventConnections {
    /// The worker waits on this connection.
    pub(crate) fn note_wait(&mut self, worker: &WorkerId, client: ClientId, mono: Monotonic) {
        if self.is_of(client, worker) {
            self.note_seen(worker, mono);
            return;
        }
        if let Some(previous) = self.workers.remove(&client) {
            self.close(previous, mono);
        }
        match self.by_worker.get(worker).copied() {
            Some(EventConnection::Open { client, .. }) => drop(self.workers.remove(&client)),
            Some(EventConnection::Closed { .. }) => self.forget(worker),
            None if self.by_worker.len() >= MAILBOXES_MAX => return,
            None => {}
        }
        self.workers.insert(client, worker.clone());
        let open = EventConnection::Open { client, seen: mono };
        self.by_worker.insert(worker.clone(), open);
    }

    /// The worker got a reply.
    pub(crate) fn note_seen(&mut self, worker: &WorkerId, mono: Monotonic) {
        if let Some(EventConnection::Open { seen, .. }) = self.by_worker.get_mut(worker) {
            *seen = mono;
        }
    }

    /// A connection has closed. Returns when its worker loses its delegations, if it is one of a worker.
    pub(crate) fn note_closed(&mut self, client: ClientId, mono: Monotonic) -> Option<Monotonic> {
        let worker = self.workers.remove(&client)?;
        Some(self.close(worker, mono))
    }

    /// Whether the worker can be notified: its connection is open, and it waits (`is_waiting`) or did a moment ago,
    /// because a worker that gets events is between two waits for a moment.
    pub(crate) fn reaches(&self, worker: &WorkerId, is_waiting: bool, mono: Monotonic) -> bool {
        match self.by_worker.get(worker) {
            Some(EventConnection::Open { seen, .. }) => {
                is_waiting || mono < seen.plus(DELEGATION_RECONNECT)
            }
            Some(EventConnection::Closed { .. }) | None => false,
        }
    }

    /// When the next worker loses its delegations.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// A worker that loses its delegations now. The caller ends them, and then [forgets](Self::forget) the worker.
    pub(crate) fn due(&self, mono: Monotonic) -> Option<&WorkerId> {
        let (until, worker) = self.deadlines.first()?;
        (*until <= mono).then_some(worker)
    }

    /// Forgets a worker whose connection has closed.
    pub(crate) fn forget(&mut self, worker: &WorkerId) {
        if let Some(EventConnection::Closed { until }) = self.by_worker.get(worker) {
            self.deadlines.remove(&(*until, worker.clone()));
            self.by_worker.remove(worker);
        }
    }

    fn is_of(&self, client: ClientId, worker: &WorkerId) -> bool {
        self.workers
            .get(&client)
            .is_some_and(|known| known == worker)
    }

    fn close(&mut self, worker: WorkerId, mono: Monotonic) -> Monotonic {
        let until = mono.plus(DELEGATION_RECONNECT);
        let closed = EventConnection::Closed { until };
        self.deadlines.insert((until, worker.clone()));
        self.by_worker.insert(worker, closed);
        until
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::time::Millis;

    use super::*;

    const START: Monotonic = Monotonic::from_ms(1_000);

    fn after(ms: u64) -> Monotonic {
        START.plus(Millis::new(ms))
    }

    fn worker(name: &str) -> WorkerId {
        WorkerId::parse(name.as_bytes()).unwrap()
    }

    /// Worker `a` waits on connection 1.
    fn waiting() -> EventConnections {
        let mut connections = EventConnections::default();
        connections.note_wait(&worker("a"), ClientId(1), START);
        connections
    }

    #[test]
    fn a_worker_is_reached_while_it_waits_and_for_a_moment_after() {
        let mut connections = waiting();
        assert!(!connections.reaches(&worker("b"), true, START));
        assert!(connections.reaches(&worker("a"), true, after(60_000)));
        connections.note_seen(&worker("a"), after(60_000));
        assert!(connections.reaches(&worker("a"), false, after(60_199)));
        assert!(!connections.reaches(&worker("a"), false, after(60_200)));
    }

    #[test]
    fn a_worker_is_lost_a_while_after_its_connection_has_closed() {
        let mut connections = waiting();
        assert_eq!(connections.note_closed(ClientId(2), after(5)), None);
        let until = connections.note_closed(ClientId(1), after(10));
        assert_eq!(until, Some(after(210)));
        assert_eq!(connections.next_deadline(), until);
        assert!(!connections.reaches(&worker("a"), false, after(10)));
        assert_eq!(connections.due(after(209)), None);
        assert_eq!(connections.due(after(210)), Some(&worker("a")));
        connections.forget(&worker("a"));
        assert_eq!(connections.due(after(210)), None);
        assert!(connections.by_worker.is_empty() && connections.workers.is_empty());
    }

    #[test]
    fn another_connection_replaces_one_that_is_open_or_closed() {
        let mut connections = waiting();
        connections.note_closed(ClientId(1), after(10));
        connections.note_wait(&worker("a"), ClientId(2), after(20));
        assert_eq!(connections.next_deadline(), None);
        connections.note_wait(&worker("a"), ClientId(3), after(30));
        assert_eq!(connections.note_closed(ClientId(2), after(40)), None);
        assert!(connections.reaches(&worker("a"), true, after(40)));
        assert!(connections.note_closed(ClientId(3), after(50)).is_some());
    }

    #[test]
    fn a_connection_is_of_one_worker() {
        let mut connections = waiting();
        connections.note_wait(&worker("b"), ClientId(1), after(10));
        assert_eq!(connections.due(after(210)), Some(&worker("a")));
        assert!(connections.reaches(&worker("b"), true, after(10)));
        assert_eq!(connections.workers.len(), 1);
    }

    #[test]
    fn the_number_of_workers_is_bounded() {
        let mut connections = EventConnections::default();
        for n in 0..=MAILBOXES_MAX as u64 {
            connections.note_wait(&worker(&format!("w{n}")), ClientId(n), START);
        }
        assert_eq!(connections.by_worker.len(), MAILBOXES_MAX);
        assert!(!connections.reaches(&worker(&format!("w{MAILBOXES_MAX}")), true, START));
        // Those that it knows can still change their connection.
        connections.note_wait(&worker("w0"), ClientId(u64::MAX), START);
        assert!(connections.reaches(&worker("w0"), true, START));
    }
}
