//! Where the next REAP of each pattern continues: one call examines a bounded number of tombstones, and without this
//! the later ones would never be examined.
//!
//! Invariant: bounded. A forgotten round starts over.

use std::collections::HashMap;

use super::glob::Glob;
use super::orders::Due;
use crate::limits::REAP_ROUNDS_MAX;

/// The rounds in progress, by the pattern of their keys.
#[derive(Debug, Default)]
pub(super) struct Rounds(HashMap<Option<Glob>, Due>);

impl Rounds {
    /// Where a round continues; `None` for a new one.
    pub(super) fn reached(&self, pattern: &Option<Glob>) -> Option<Due> {
        self.0.get(pattern).copied()
    }

    /// Records where a round continues; `None` if it is complete.
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
    fn rounds_continue_by_their_pattern_and_are_bounded() {
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
