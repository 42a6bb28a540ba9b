//! The workers of a fleet: their liveness and their events.

use std::time::Duration;

use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::workers::Beat;

use super::{Backend, Store, on_backend};
use crate::error::StoreError;
use crate::events::{EventPath, WorkerEvent};
use crate::workers::WorkerView;

impl Store {
    /// Announces a worker's life. Never acknowledged while the store is away. A refusal is remembered until the next
    /// heartbeat: see [`worker_refusal`](Self::worker_refusal).
    ///
    /// # Errors
    /// Refused: `STALE` for a boot that a later one has replaced, `BUSY` for another address than the one with which the
    /// worker is alive, `LIMIT`.
    pub async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        let beaten = on_backend!("WORKER.BEAT", self.beat(beat));
        let refusal = match &beaten {
            Err(StoreError::Refused(refusal)) => Some(refusal.clone()),
            Ok(()) | Err(_) => None,
        };
        self.worker_refusal.send_replace(refusal);
        beaten
    }

    /// Why the last heartbeat of this process's worker was refused, if it was: as for a name that another process has.
    /// Without heartbeats a worker gets no turns and owns nothing.
    #[must_use]
    pub fn worker_refusal(&self) -> Option<Refusal> {
        self.worker_refusal.borrow().clone()
    }

    /// Announces that a worker stops. Answers whether it was alive.
    ///
    /// # Errors
    /// None of the rules'.
    pub async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        on_backend!("WORKER.GONE", self.gone(worker))
    }

    /// All workers with a heartbeat in the store.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        on_backend!("WORKER.LIST", self.workers())
    }

    /// Whether [`wait_for_events`](Self::wait_for_events) reports changes by other processes. The embedded file does
    /// not: a caller that waits for one has to poll.
    #[must_use]
    pub fn reports_events_of_others(&self) -> bool {
        match &*self.backend {
            Backend::Embedded(store) => store.is_private(),
            _ => true,
        }
    }

    /// The way by which this worker's events arrive while [`wait_for_events`](Self::wait_for_events) waits for them. None
    /// while none can arrive; another one than before if some may not have arrived.
    #[must_use]
    pub fn event_path(&self, worker: &WorkerId) -> Option<EventPath> {
        match &*self.backend {
            Backend::Embedded(_) => Some(EventPath::IN_PROCESS),
            Backend::Redis(store, _) => store.event_path(worker),
            Backend::Fallback(store) => store.event_path(worker),
        }
    }

    /// Waits for events of this worker, for at most `timeout`; returns none if there were none. One caller per worker
    /// waits at a time; others queue. The future may be dropped at any time: its events go to the next caller.
    ///
    /// # Errors
    /// The store's own only. Where the store is away, it is waited for within `timeout`, so that a caller who asks
    /// again at once does not spin.
    pub async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        // Its duration is not recorded: it waits for an event.
        on_backend!(self.wait_for_events(worker, timeout))
    }
}
