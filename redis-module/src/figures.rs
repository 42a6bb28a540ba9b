//! What the module counts: one table for `INFO mooring` and `SESSION.STATS`.
//!
//! Invariant: a name is never dropped and never changes its meaning; counters begin at zero with every load.

use std::ffi::CStr;

use crate::failure::{CODES, Failure};
use crate::module::Module;

/// Counters since the module was loaded.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// ROUTE found a binding.
    pub(crate) hits: u64,
    /// ROUTE found none.
    pub(crate) misses: u64,
    /// A server was bound.
    pub(crate) binds: u64,
    /// A binding was moved.
    pub(crate) rebinds: u64,
    /// The first use of a binding by another worker after the death of the one before.
    pub(crate) worker_losses: u64,
    /// CREATE began an incarnation.
    pub(crate) creates: u64,
    /// CREATE found the session.
    pub(crate) reuses: u64,
    /// CREATE revived a session that had expired.
    pub(crate) expirations: u64,
    /// END or KILL ended a session.
    pub(crate) ends: u64,
    /// A use was written.
    pub(crate) touches_written: u64,
    /// A use came so soon after a written one that it was not.
    pub(crate) touches_coalesced: u64,
    failures: [u64; CODES.len()],
}

impl Figures {
    /// Counts a failure by its code.
    pub(crate) fn note_failure(&mut self, failure: &Failure) {
        let code = failure.code();
        for (count, known) in self.failures.iter_mut().zip(CODES) {
            *count += u64::from(known == code);
        }
    }

    /// Counts a use.
    pub(crate) fn note_touch(&mut self, written: mooring_session::Written) {
        if written == mooring_session::Written::Nothing {
            self.touches_coalesced += 1;
        } else {
            self.touches_written += 1;
        }
    }
}

const FAILURE_NAMES: [&CStr; CODES.len()] = [
    c"failures_nosession",
    c"failures_ended",
    c"failures_denied",
    c"failures_stale",
    c"failures_owned",
    c"failures_busy",
    c"failures_limit",
    c"failures_err",
    c"failures_wrongtype",
];

/// All figures with their names.
pub(crate) fn all(module: &Module) -> Vec<(&'static CStr, u64)> {
    let figures = &module.figures;
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
        (c"hits", figures.hits),
        (c"misses", figures.misses),
        (c"binds", figures.binds),
        (c"rebinds", figures.rebinds),
        (c"worker_losses", figures.worker_losses),
        (c"creates", figures.creates),
        (c"reuses", figures.reuses),
        (c"expirations", figures.expirations),
        (c"ends", figures.ends),
        (c"touches_written", figures.touches_written),
        (c"touches_coalesced", figures.touches_coalesced),
        (c"turns_granted", turns.granted),
        (c"turns_waited", turns.waited),
        (c"turns_lost", turns.lost),
        (c"turn_queues", turn_queues as u64),
        (c"turn_waiters", turn_waiters as u64),
        (c"workers_waiting", module.waiting.len() as u64),
        (c"workers_alive", alive),
        (c"workers_dead", workers.len() as u64 - alive),
        (c"index_ready", u64::from(module.are_all_whole())),
    ];
    all.extend(FAILURE_NAMES.into_iter().zip(figures.failures));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_counter() {
        for (name, code) in FAILURE_NAMES.iter().zip(CODES) {
            let expected = format!("failures_{}", code.to_lowercase());
            assert_eq!(name.to_str(), Ok(expected.as_str()));
        }
        let mut figures = Figures::default();
        figures.note_failure(&Failure::WrongType);
        figures.note_failure(&Failure::Internal);
        assert_eq!(figures.failures, [0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }
}
