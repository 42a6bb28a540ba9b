//! The workers of a fleet: who lives, and what each is told.

use std::time::Duration;

use mooring_session::names::{Address, WorkerId};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::workers::{self, Beat, Drain};

use super::error::StoreError;
use super::events::WorkerEvent;
use super::{Backend, Store, on_backend};

/// How long a worker that was never heard counts as alive: the module's default.
pub(super) const WORKER_GRACE: Millis = Millis::new(15_000);

/// What a store tells of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Name and boot id.
    pub worker: WorkerId,
    /// Where its peers reach it.
    pub address: Address,
    /// Whether its last beat still holds.
    pub alive: bool,
    /// What it announced.
    pub drain: Drain,
    /// When it was last heard.
    pub last_beat_at: Timestamp,
    /// How many bindings it drives; none where the store does not know.
    pub bindings: Option<u64>,
}

impl WorkerView {
    pub(super) fn of(view: workers::WorkerView, bindings: Option<u64>) -> Self {
        Self {
            worker: view.worker,
            address: view.address,
            alive: view.alive,
            drain: view.drain,
            last_beat_at: view.last_beat_at,
            bindings,
        }
    }
}

impl Store {
    /// Announces a worker's life. Never acknowledged while the store is away.
    ///
    /// # Errors
    /// Refused: `STALE` for a boot that a later one has replaced, `BUSY` for another address than the one with which the
    /// worker is alive, `LIMIT`.
    pub async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        on_backend!("WORKER.BEAT", self.beat(beat))
    }

    /// Announces that a worker stops. Answers whether it was alive.
    ///
    /// # Errors
    /// None of the rules'.
    pub async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        on_backend!("WORKER.GONE", self.gone(worker))
    }

    /// Everybody that the store has heard.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        on_backend!("WORKER.LIST", self.workers())
    }

    /// Whether [`wait_for_events`](Self::wait_for_events) reports what other processes did. The embedded file does not:
    /// a caller that waits for one of them has to ask again.
    #[must_use]
    pub fn reports_events_of_others(&self) -> bool {
        match &*self.backend {
            Backend::Embedded(store, _) => store.is_private(),
            _ => true,
        }
    }

    /// Waits for events of this worker, for `timeout` at most; none where there were none. One caller per worker waits
    /// at a time; another waits behind it. The future may be dropped at any moment: events that it would have returned
    /// go to the next caller.
    ///
    /// # Errors
    /// The store's own only. Where the store is away, it is waited for within `timeout`, so that a caller who asks
    /// again at once does not spin.
    pub async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        // Its duration says nothing: it waits for something to happen.
        on_backend!(self.wait_for_events(worker, timeout))
    }
}
