//! What the figures mean that SESSION.STATS and INFO tell.
//!
//! Invariant: these are all figures and no other: redis-module/tests/server/metadata.rs compares them with the answer.

use super::put;
use crate::failure::CODES;

/// The meanings, in the order in which figures are told.
const MEANINGS: [(&str, &str); 24] = [
    (
        "sessions_active",
        "sessions that are active, by the indexes",
    ),
    (
        "sessions_expired",
        "sessions that expired and whose tombstone still stands",
    ),
    (
        "sessions_ended",
        "sessions that were ended and whose tombstone still stands",
    ),
    ("bindings_active", "bindings of active sessions"),
    ("hits", "ROUTE found a binding"),
    ("misses", "ROUTE found none"),
    ("binds", "BIND made a binding"),
    ("rebinds", "REBIND moved a binding"),
    (
        "worker_losses",
        "the first use of a binding by another worker after the death of the one before",
    ),
    ("creates", "CREATE began an incarnation"),
    ("reuses", "CREATE found the session"),
    ("expirations", "CREATE revived a session that had expired"),
    ("ends", "END or KILL ended a session"),
    ("touches_written", "a use was written and replicated"),
    (
        "touches_coalesced",
        "a use came so soon after a written one that it was not",
    ),
    ("turns_granted", "a caller got its turn"),
    ("turns_waited", "a caller had to wait for its turn"),
    (
        "turns_lost",
        "a holder lost its turn: its lease lapsed or its worker died",
    ),
    ("turn_queues", "queues of turns in memory now"),
    ("turn_waiters", "callers that wait for their turn now"),
    ("workers_waiting", "workers in WORKER.WAIT now"),
    ("workers_alive", "workers that are alive"),
    ("workers_dead", "workers that are remembered as dead"),
    (
        "index_ready",
        "1 where the indexes are whole, 0 while they are rebuilt",
    ),
];

/// The section of the page.
pub(super) fn section(page: &mut String) {
    put(
        page,
        "\n## Figures\n\nIn INFO each has `mooring_` before its name. Counters begin at zero with every load of the \
         module.\n\n| figure | meaning |\n|---|---|",
    );
    for (name, meaning) in MEANINGS {
        put(page, &format!("| `{name}` | {meaning} |"));
    }
    for code in CODES {
        let name = code.to_lowercase();
        put(
            page,
            &format!("| `failures_{name}` | a command was refused with `{code}` |"),
        );
    }
}
