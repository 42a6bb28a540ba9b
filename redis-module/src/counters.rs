//! Counters of the module's commands. They start at zero whenever the module is loaded.

use std::ffi::CStr;
use std::time::Duration;

use crate::failure::{CODES, Failure};

/// What was counted since the module was loaded.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// ROUTE found a binding.
    pub(crate) hits: u64,
    /// ROUTE found none.
    pub(crate) misses: u64,
    /// A server was bound.
    pub(crate) binds: u64,
    /// A binding was moved.
    pub(crate) rebinds: u64,
    /// A binding was used by another worker for the first time after the previous one died.
    pub(crate) worker_losses: u64,
    /// CREATE created a session or revived one.
    pub(crate) creates: u64,
    /// CREATE found an active session.
    pub(crate) reuses: u64,
    /// CREATE revived a session that had expired.
    pub(crate) expirations: u64,
    /// END or KILL ended a session.
    pub(crate) ends: u64,
    /// A use was written.
    pub(crate) touches_written: u64,
    /// A use followed a written one so closely that it was not written.
    pub(crate) touches_coalesced: u64,
    /// CREATE was refused at a cap.
    pub(crate) caps_refused: u64,
    /// CREATE did not apply its CAP, because the index was incomplete.
    pub(crate) caps_skipped: u64,
    /// The wall clock was set.
    pub(crate) clock_steps: u64,
    /// The server evicted an active session.
    pub(crate) evicted_active: u64,
    /// A key was read for the indexes, after an event or by a scan.
    pub(crate) index_reads: u64,
    /// How long the last tick took, in microseconds.
    pub(crate) tick_us: u64,
    /// How long the longest tick took, in microseconds.
    pub(crate) tick_us_max: u64,
    failures: [u64; CODES.len()],
}

impl Counters {
    /// Counts a failure by its code.
    pub(crate) fn note_failure(&mut self, failure: &Failure) {
        let code = failure.code();
        for (count, known) in self.failures.iter_mut().zip(CODES) {
            *count += u64::from(known == code);
        }
    }

    /// Counts a use.
    pub(crate) fn note_touch(&mut self, written: mooring_session::RecordChange) {
        if written == mooring_session::RecordChange::Nothing {
            self.touches_coalesced += 1;
        } else {
            self.touches_written += 1;
        }
    }

    /// Notes how long a tick took.
    pub(crate) fn note_tick(&mut self, took: Duration) {
        self.tick_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.tick_us_max = self.tick_us_max.max(self.tick_us);
    }

    /// The failures of each code, with the counter's name.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static CStr, u64)> {
        FAILURE_NAMES.into_iter().zip(self.failures)
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
    c"failures_oom",
    c"failures_readonly",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_counter() {
        for (name, code) in FAILURE_NAMES.iter().zip(CODES) {
            let expected = format!("failures_{}", code.to_lowercase());
            assert_eq!(name.to_str(), Ok(expected.as_str()));
        }
        let mut counters = Counters::default();
        counters.note_failure(&Failure::WrongType);
        counters.note_failure(&Failure::Internal);
        assert_eq!(counters.failures, [0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
    }
}
