//! The clients that are blocked in WORKER.WAIT, and their time-outs.
//!
//! Invariants: a blocked client is handed back to the server exactly once, by dropping its [`BlockedClient`], also
//! after it has disconnected; of one worker at most one client waits.

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
    /// The worker of each client: of those that wait, and of those that were woken and have no reply yet.
    workers: HashMap<BlockedId, WorkerId>,
}

impl BlockedClients {
    /// Number of clients that wait.
    pub(crate) fn len(&self) -> usize {
        self.by_worker.len()
    }

    /// Whether a client of this worker waits.
    pub(crate) fn has(&self, worker: &WorkerId) -> bool {
        self.by_worker.contains_key(worker)
    }

    /// Lets the client wait for news of its worker, at most until the moment given.
    pub(crate) fn block(&mut self, worker: &WorkerId, client: BlockedClient, until: Monotonic) {
        self.workers.insert(client.id(), worker.clone());
        // The one before is dropped here, and so woken.
        self.by_worker
            .insert(worker.clone(), BlockedWait { client, until });
    }

    /// Wakes the worker's client, if it waits.
    pub(crate) fn wake(&mut self, worker: &WorkerId) {
        drop(self.by_worker.remove(worker));
    }

    /// Wakes all clients.
    pub(crate) fn wake_all(&mut self) {
        self.by_worker.clear();
    }

    /// Wakes the clients whose time-out has passed.
    pub(crate) fn pass_deadlines(&mut self, mono: Monotonic) {
        self.by_worker.retain(|_, waiter| mono < waiter.until);
    }

    /// The client gets its reply now, or is gone: hands it back if that was not done yet, and answers with its worker.
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
