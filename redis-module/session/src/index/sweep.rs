//! How an index is made true again: everything that is there is put in once more, and then what was not seen is
//! removed.
//!
//! Both take many calls, between which the index goes on being fed and asked. A sweep that sees nothing takes an index
//! apart that nobody needs any more: a million sessions take longer to drop than a command may.

use super::Index;
use crate::progress::StepProgress;

impl Index {
    /// Begins a sweep. From now on everything that is put or slid counts as seen. A sweep that was under way is given
    /// up.
    pub const fn begin_sweep(&mut self) {
        self.sweep = self.sweep.wrapping_add(1);
        self.swept = 0;
    }

    /// Removes what the sweep has not seen, looking at no more than `limit` entries. [`StepProgress::Done`]: all of it
    /// is removed.
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
                self.take(slot);
            }
        }
        StepProgress::More
    }
}
