//! The clients that are blocked in WORKER.WAIT, and their timeouts.
//!
//! Invariants: a blocked client is returned to the server exactly once, by dropping its [`BlockedClient`], also after
//! it has disconnected; at most one client of a worker is blocked.

use std::collections::{BTreeMap, HashMap};

use mooring_session::names::WorkerId;
use mooring_session::time::Monotonic;

use crate::ffi::{BlockedClient, BlockedId};

/// A blocked client.
struct BlockedWait {
    client: BlockedClient,
    /// When it times out.
    until: Monotonic,
}

/// The blocked clients, by worker.
#[derive(Default)]
pub(crate) struct BlockedClients {
    by_worker: BTreeMap<WorkerId, BlockedWait>,
    /// The worker of each client that is blocked, or that was woken and has no reply yet.
    workers: HashMap<BlockedId, WorkerId>,
}

impl BlockedClients {
    /// The number of blocked clients.
    pub(crate) fn len(&self) -> usize {
        self.by_worker.len()
    }

    /// Whether a client of this worker is blocked.
    pub(crate) fn has(&self, worker: &WorkerId) -> bool {
        self.by_worker.contains_key(worker)
    }

    /// Blocks the client until its worker has events, at most until `until`.
    pub(crate) fn block(&mut self, worker: &WorkerId, client: BlockedClient, until: Monotonic) {
        self.workers.insert(client.id(), worker.clone());
        // This drops a previous client of the worker, which wakes it.
        self.by_worker
            .insert(worker.clone(), BlockedWait { client, until });
    }

    /// Wakes the worker's client, if one is blocked.
    pub(crate) fn wake(&mut self, worker: &WorkerId) {
        drop(self.by_worker.remove(worker));
    }

    /// Wakes all clients.
    pub(crate) fn wake_all(&mut self) {
        self.by_worker.clear();
    }

    /// Wakes the clients whose timeout has passed.
    pub(crate) fn wake_timed_out(&mut self, mono: Monotonic) {
        self.by_worker.retain(|_, waiter| mono < waiter.until);
    }

    /// The client gets its reply now, or has disconnected: returns it to the server if necessary. Returns its worker.
    pub(crate) fn release(&mut self, client: BlockedId) -> Option<WorkerId> {
        let worker = self.workers.remove(&client)?;
        let waiter = self.by_worker.get(&worker);
        let waits = waiter.is_some_and(|waiter| waiter.client.id() == client);
        if waits {
            self.wake(&worker);
        }
        Some(worker)
    }
}
