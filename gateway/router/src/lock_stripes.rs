//! A state in parts, each with a lock of its own, so that the threads that serve seldom wait for each other.
//!
//! Invariant: what belongs to one key is always in the same part.

use std::hash::{BuildHasher as _, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

/// How many parts there are: several times the threads that may lock one at a time.
pub(crate) const PARTS: usize = 32;

/// A state in [`PARTS`] parts.
#[derive(Debug, Default)]
pub(crate) struct LockStripes<T> {
    parts: [Mutex<T>; PARTS],
    hasher: RandomState,
}

impl<T> LockStripes<T> {
    /// The part with what belongs to the key.
    #[allow(
        clippy::indexing_slicing,
        reason = "a remainder of their number is an index of the parts"
    )]
    pub(crate) fn part_of(&self, key: &impl Hash) -> MutexGuard<'_, T> {
        lock(&self.parts[self.hasher.hash_one(key) as usize % PARTS])
    }

    /// The parts one after the other. Others may change those that are not locked.
    pub(crate) fn parts(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.parts.iter().map(lock)
    }
}

fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    // Its users leave it consistent after every statement, so a poisoned lock is usable.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
