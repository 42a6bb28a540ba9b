//! Which sessions a reaper may clean up, for the stores that decide it in this process.

use mooring_session::context::Liveness;
use mooring_session::names::WorkerId;
use mooring_session::record::{Record, SessionState};
use mooring_session::time::Timestamp;

/// Like the module's index: resources with an owner are returned to that owner while it is alive, and to every worker
/// once it is dead.
pub(crate) fn is_due(
    record: &Record,
    worker: &WorkerId,
    workers: &dyn Liveness,
    now: Timestamp,
) -> bool {
    let is_being_cleaned = record.cleaning.as_ref().is_some_and(|it| it.is_live(now));
    let mut owners = record
        .bindings
        .values()
        .filter_map(|binding| binding.owner.as_ref());
    record.lifetime.state(now) != SessionState::Active
        && !is_being_cleaned
        && !record.has_live_claim(now)
        && (owners.clone().any(|owner| owner == worker)
            || owners.all(|owner| !workers.is_alive(owner)))
}
