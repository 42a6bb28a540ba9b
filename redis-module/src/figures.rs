//! What the module reports about itself: one table for `INFO mooring`, `SESSION.STATS` and the page of the latter.
//!
//! Invariant: a name is never dropped and never changes its meaning.

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

/// What figures are read from. What takes a walk is counted once for all of them.
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

/// All figures but those of failures, in the order in which they are told.
pub(crate) static FIGURES: &[Figure] = &[
    Figure::new(
        c"sessions_active",
        "sessions that are active, by the indexes",
        |now| now.sessions.active,
    ),
    Figure::new(
        c"sessions_expired",
        "sessions that expired and whose tombstone still stands",
        |now| now.sessions.expired,
    ),
    Figure::new(
        c"sessions_ended",
        "sessions that were ended and whose tombstone still stands",
        |now| now.sessions.ended,
    ),
    Figure::new(c"bindings_active", "bindings of active sessions", |now| {
        now.sessions.bindings_active
    }),
    Figure::new(c"hits", "ROUTE found a binding", |now| now.counters.hits),
    Figure::new(c"misses", "ROUTE found none", |now| now.counters.misses),
    Figure::new(c"binds", "BIND made a binding", |now| now.counters.binds),
    Figure::new(c"rebinds", "REBIND moved a binding", |now| {
        now.counters.rebinds
    }),
    Figure::new(
        c"worker_losses",
        "the first use of a binding by another worker after the death of the one before",
        |now| now.counters.worker_losses,
    ),
    Figure::new(c"creates", "CREATE began an incarnation", |now| {
        now.counters.creates
    }),
    Figure::new(c"reuses", "CREATE found the session", |now| {
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
        "a use came so soon after a written one that it was not",
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
    Figure::new(c"turn_queues", "queues of turns in memory now", |now| {
        now.module.turns.sizes().0 as u64
    }),
    Figure::new(
        c"turn_waiters",
        "callers that wait for their turn now",
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
        "1 where the indexes are whole and verified, 0 while they are filled or verified",
        |now| u64::from(now.module.are_all_verified()),
    ),
    Figure::new(
        c"index_bytes",
        "memory that the indexes take, estimated",
        |now| now.module.indexes.bytes(),
    ),
    Figure::new(
        c"rebuild_databases",
        "databases whose index is being rebuilt or verified, or waits for that",
        |now| now.module.rebuild.databases() as u64,
    ),
    Figure::new(
        c"rebuild_keys",
        "keys that the walk under way has read; the database has as many as DBSIZE says",
        |now| now.module.rebuild.keys(),
    ),
    Figure::new(
        c"index_reads",
        "keys that were read for the indexes: after events, and by walks",
        |now| now.counters.index_reads,
    ),
    Figure::new(c"caps_refused", "CREATE was refused at a cap", |now| {
        now.counters.caps_refused
    }),
    Figure::new(
        c"caps_skipped",
        "CREATE kept no cap, because the index was being filled",
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
        "microseconds that the longest one took",
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
