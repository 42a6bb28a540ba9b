//! What the module reports about itself: one table for `INFO mooring` and `SESSION.STATS`.
//!
//! Invariant: a name is never dropped and never changes its meaning.

use std::ffi::CStr;

use crate::module::Module;

/// All figures with their names.
pub(crate) fn all(module: &Module) -> Vec<(&'static CStr, u64)> {
    let counters = &module.counters;
    let workers = module.workers.list(module.monotonic());
    let alive = workers.iter().filter(|worker| worker.alive).count() as u64;
    let turns = module.turns.figures();
    let (turn_queues, turn_waiters) = module.turns.sizes();
    let sessions = module.indexes.counts();
    let mut all = vec![
        (c"sessions_active", sessions.active),
        (c"sessions_expired", sessions.expired),
        (c"sessions_ended", sessions.ended),
        (c"bindings_active", sessions.bindings_active),
        (c"hits", counters.hits),
        (c"misses", counters.misses),
        (c"binds", counters.binds),
        (c"rebinds", counters.rebinds),
        (c"worker_losses", counters.worker_losses),
        (c"creates", counters.creates),
        (c"reuses", counters.reuses),
        (c"expirations", counters.expirations),
        (c"ends", counters.ends),
        (c"touches_written", counters.touches_written),
        (c"touches_coalesced", counters.touches_coalesced),
        (c"turns_granted", turns.granted),
        (c"turns_waited", turns.waited),
        (c"turns_lost", turns.lost),
        (c"turn_queues", turn_queues as u64),
        (c"turn_waiters", turn_waiters as u64),
        (c"workers_waiting", module.blocked_clients.len() as u64),
        (c"workers_alive", alive),
        (c"workers_dead", workers.len() as u64 - alive),
        (c"index_ready", u64::from(module.are_all_verified())),
    ];
    all.extend(counters.failures());
    all
}
