//! Where the next REAP goes on, for each pattern that is asked for: one call looks at a bounded number of tombstones, and
//! without this those behind it would never be looked at.
//!
//! Invariant: bounded. A round that is forgotten begins at the front again.

use std::collections::HashMap;

use super::glob::Glob;
use super::orders::Due;
use crate::limits::REAP_ROUNDS_MAX;

/// The rounds that are under way, by the pattern of their keys.
#[derive(Debug, Default)]
pub(super) struct Rounds(HashMap<Option<Glob>, Due>);

impl Rounds {
    /// Where a round has come to; none for one that begins.
    pub(super) fn reached(&self, pattern: &Option<Glob>) -> Option<Due> {
        self.0.get(pattern).copied()
    }

    /// Notes where a round has come to; none where it is at its end.
    pub(super) fn note(&mut self, pattern: &Option<Glob>, reached: Option<Due>) {
        let Some(reached) = reached else {
            self.0.remove(pattern);
            return;
        };
        if self.0.len() >= REAP_ROUNDS_MAX && !self.0.contains_key(pattern) {
            self.0.clear();
        }
        self.0.insert(pattern.clone(), reached);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn pattern(number: usize) -> Option<Glob> {
        Some(Glob::parse(format!("{number}:*").as_bytes()).unwrap())
    }

    #[test]
    fn rounds_go_on_by_their_pattern_and_never_grow_beyond_their_bound() {
        let mut rounds = Rounds::default();
        let reached = Due::last_of(None);
        for number in 0..REAP_ROUNDS_MAX {
            assert_eq!(rounds.reached(&pattern(number)), None);
            rounds.note(&pattern(number), Some(reached));
            assert_eq!(rounds.reached(&pattern(number)), Some(reached));
        }
        rounds.note(&pattern(0), None);
        assert_eq!(rounds.reached(&pattern(0)), None);
        rounds.note(&None, Some(reached));
        assert_eq!(rounds.0.len(), REAP_ROUNDS_MAX);
        rounds.note(&pattern(0), Some(reached));
        assert_eq!(rounds.0.len(), 1);
    }
}
