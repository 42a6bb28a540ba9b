//! What the module reports about itself: one table for `INFO mooring`, `SESSION.STATS` and the page of the latter.
//!
//! Invariant: a name is never removed and never changes its meaning.

use std::ffi::CStr;

use mooring_session::index::IndexCounts;

use crate::counters::Counters;
use crate::module::Module;

/// One figure.
pub(crate) struct Figure {
    /// Its name.
    pub(crate) name: &'static CStr,
    /// What it means, for the reference page.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test makes the reference page")
    )]
    pub(crate) meaning: &'static str,
    read: fn(&FigureSources<'_>) -> u64,
}

/// The sources of the figures. A count that needs an iteration is made once for all of them.
struct FigureSources<'m> {
    module: &'m Module,
    counters: &'m Counters,
    sessions: IndexCounts,
    workers_alive: u64,
    workers_dead: u64,
}

impl Figure {
    const fn new(
        name: &'static CStr,
        meaning: &'static str,
        read: fn(&FigureSources<'_>) -> u64,
    ) -> Self {
        Self {
            name,
            meaning,
            read,
        }
    }
}

/// All figures but those of failures, in the order in which they are reported.
pub(crate) static FIGURES: &[Figure] = &[
    Figure::new(
        c"sessions_active",
        "active sessions, according to the indexes",
        |now| now.sessions.active,
    ),
    Figure::new(
        c"sessions_expired",
        "expired sessions whose tombstone has not been dropped",
        |now| now.sessions.expired,
    ),
    Figure::new(
        c"sessions_ended",
        "ended sessions whose tombstone has not been dropped",
        |now| now.sessions.ended,
    ),
    Figure::new(c"bindings_active", "bindings of active sessions", |now| {
        now.sessions.bindings_active
    }),
    Figure::new(c"hits", "ROUTE found a binding", |now| now.counters.hits),
    Figure::new(c"misses", "ROUTE found none", |now| now.counters.misses),
    Figure::new(c"binds", "BIND created a binding", |now| now.counters.binds),
    Figure::new(c"rebinds", "REBIND moved a binding", |now| {
        now.counters.rebinds
    }),
    Figure::new(
        c"worker_losses",
        "a binding was used by another worker for the first time after the previous one died",
        |now| now.counters.worker_losses,
    ),
    Figure::new(
        c"creates",
        "CREATE created a session or revived one",
        |now| now.counters.creates,
    ),
    Figure::new(c"reuses", "CREATE found an active session", |now| {
        now.counters.reuses
    }),
    Figure::new(
        c"expirations",
        "CREATE revived a session that had expired",
        |now| now.counters.expirations,
    ),
    Figure::new(c"ends", "END or KILL ended a session", |now| {
        now.counters.ends
    }),
    Figure::new(
        c"touches_written",
        "a use was written and replicated",
        |now| now.counters.touches_written,
    ),
    Figure::new(
        c"touches_coalesced",
        "a use followed a written one so closely that it was not written",
        |now| now.counters.touches_coalesced,
    ),
    Figure::new(c"turns_granted", "a caller got its turn", |now| {
        now.module.turns.figures().granted
    }),
    Figure::new(
        c"turns_waited",
        "a caller had to wait for its turn",
        |now| now.module.turns.figures().waited,
    ),
    Figure::new(
        c"turns_lost",
        "a holder lost its turn: its lease lapsed or its worker died",
        |now| now.module.turns.figures().lost,
    ),
    Figure::new(
        c"turns_delegated",
        "a turn was delegated to the worker of its caller",
        |now| now.module.turns.figures().delegated,
    ),
    Figure::new(
        c"turns_recalled",
        "a worker was asked to give a delegated turn back, because another caller waits",
        |now| now.module.turns.figures().recalled,
    ),
    Figure::new(c"turn_queues", "queues of turns in memory now", |now| {
        now.module.turns.sizes().0 as u64
    }),
    Figure::new(
        c"turn_waiters",
        "callers that are waiting for their turn now",
        |now| now.module.turns.sizes().1 as u64,
    ),
    Figure::new(c"workers_waiting", "workers in WORKER.WAIT now", |now| {
        now.module.blocked_clients.len() as u64
    }),
    Figure::new(c"workers_alive", "workers that are alive", |now| {
        now.workers_alive
    }),
    Figure::new(
        c"workers_dead",
        "workers that are remembered as dead",
        |now| now.workers_dead,
    ),
    Figure::new(
        c"index_ready",
        "1 if the indexes are complete and verified, 0 while they are being filled or verified",
        |now| u64::from(now.module.are_all_verified()),
    ),
    Figure::new(
        c"index_bytes",
        "estimated memory of the indexes, in bytes",
        |now| now.module.indexes.bytes(),
    ),
    Figure::new(
        c"rebuild_databases",
        "databases whose index is being rebuilt or verified, or waits for that",
        |now| now.module.rebuild.databases() as u64,
    ),
    Figure::new(
        c"rebuild_keys",
        "keys that the current scan has read, of the number that DBSIZE returns",
        |now| now.module.rebuild.keys(),
    ),
    Figure::new(
        c"index_reads",
        "keys read for the indexes, after events and by scans",
        |now| now.counters.index_reads,
    ),
    Figure::new(c"caps_refused", "CREATE was refused at a cap", |now| {
        now.counters.caps_refused
    }),
    Figure::new(
        c"caps_skipped",
        "CREATE did not apply a cap, because the index was being filled",
        |now| now.counters.caps_skipped,
    ),
    Figure::new(
        c"evicted_active",
        "active sessions that the server evicted at `maxmemory`",
        |now| now.counters.evicted_active,
    ),
    Figure::new(
        c"clock_steps",
        "the wall clock was set by more than a second",
        |now| now.counters.clock_steps,
    ),
    Figure::new(
        c"tick_us",
        "microseconds that the last tick of the housekeeping took",
        |now| now.counters.tick_us,
    ),
    Figure::new(
        c"tick_us_max",
        "microseconds that the longest tick took",
        |now| now.counters.tick_us_max,
    ),
];

/// All figures with their names.
pub(crate) fn all(module: &Module) -> Vec<(&'static CStr, u64)> {
    let workers = module.workers.list(module.monotonic());
    let workers_alive = workers.iter().filter(|worker| worker.alive).count() as u64;
    let now = FigureSources {
        module,
        counters: &module.counters,
        sessions: module.indexes.counts(),
        workers_alive,
        workers_dead: workers.len() as u64 - workers_alive,
    };
    let figures = FIGURES.iter();
    let all = figures.map(|figure| (figure.name, (figure.read)(&now)));
    all.chain(module.counters.failures()).collect()
}
