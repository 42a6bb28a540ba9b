//! What a store tells of the workers of a fleet.

use mooring_session::names::{Address, WorkerId};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::workers::{self, Drain};

/// How long a worker without a heartbeat so far counts as alive: the module's default.
pub(super) const WORKER_GRACE: Millis = Millis::new(15_000);

/// A store's view of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Name and boot id.
    pub worker: WorkerId,
    /// Where its peers reach it.
    pub address: Address,
    /// Whether its last heartbeat is still valid.
    pub alive: bool,
    /// Whether it has announced to drain.
    pub drain: Drain,
    /// The time of its last heartbeat.
    pub last_beat_at: Timestamp,
    /// The number of its bindings; none if the store does not count them.
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
