//! Chance, and a queue of events in virtual time: what every seeded simulation of this crate is made of.
//!
//! Invariant: everything is decided by the seed; events of one moment happen in the order in which they were posted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and the same on every platform and in every version, so that a
/// seed means one run for good.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// True in so many cases of a hundred.
    pub(crate) fn percent(&mut self, cases: u64) -> bool {
        self.next() % 100 < cases
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = usize::try_from(self.next() % choices.len() as u64).unwrap();
        *choices.get(index).unwrap()
    }
}

/// Events to come, by time.
pub(crate) struct Queue<E> {
    due: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, E>,
    posted: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            due: BinaryHeap::new(),
            events: BTreeMap::new(),
            posted: 0,
        }
    }
}

impl<E> Queue<E> {
    pub(crate) fn post(&mut self, at: u64, event: E) {
        self.posted += 1;
        self.due.push(Reverse((at, self.posted)));
        self.events.insert(self.posted, event);
    }

    /// The next event, if it is due before `until`.
    pub(crate) fn take(&mut self, until: u64) -> Option<(u64, E)> {
        let Reverse((at, number)) = self.due.peek().copied()?;
        if at >= until {
            return None;
        }
        self.due.pop();
        Some((at, self.events.remove(&number).unwrap()))
    }
}
