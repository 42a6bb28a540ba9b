//! How an index is verified: all existing records are added again, and then the entries that were not seen are removed.
//!
//! Both take many calls, between which the index stays in use. A sweep without any record removes all entries of an
//! index that is no longer needed: dropping a million sessions takes longer than a command may take.

use super::Index;
use crate::progress::StepProgress;

impl Index {
    /// Begins a sweep. From now on every added or updated entry counts as seen. A running sweep is abandoned.
    pub const fn begin_sweep(&mut self) {
        self.sweep = self.sweep.wrapping_add(1);
        self.swept = 0;
    }

    /// Removes the entries that the sweep has not seen, examining at most `limit` entries. [`StepProgress::Done`]: all
    /// are removed.
    pub fn end_sweep(&mut self, limit: usize) -> StepProgress {
        for _ in 0..limit {
            if self.swept >= self.entries.end() {
                return StepProgress::Done;
            }
            let slot = self.swept;
            self.swept += 1;
            let is_unseen = self
                .entries
                .get(slot)
                .is_some_and(|entry| entry.sweep != self.sweep);
            if is_unseen {
                self.remove_entry(slot);
            }
        }
        StepProgress::More
    }
}
