//! Values under small numbers, which stay the same while the value exists and are reused afterwards.
//!
//! Invariants: no operation moves existing values. They are stored in chunks, because a vector of a million entries
//! that doubles would copy them all within one command. A chunk without values takes no memory. The lowest free number
//! is used first, so that the last chunks become empty when most values are removed.

use std::collections::BTreeSet;

/// The number of a value in a [`Slab`].
pub(super) type Slot = u32;

/// Every slot is below this number, which leaves one bit of its type for other uses.
pub(super) const SLOTS_MAX: Slot = Slot::MAX / 2;

/// Values per chunk: one bit of a word each.
const CHUNK_VALUES: usize = u64::BITS as usize;

/// Numbered values.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// The last chunk has a value.
    chunks: Vec<Chunk<T>>,
    /// Chunks with free places, empty ones included.
    with_room: BTreeSet<usize>,
}

#[derive(Debug)]
struct Chunk<T> {
    /// Without values, it has no capacity.
    values: Vec<Option<T>>,
    /// A bit for each value.
    taken: u64,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            with_room: BTreeSet::new(),
        }
    }

    /// Every slot in use is below this number.
    pub(super) fn end(&self) -> Slot {
        let Some(last) = self.chunks.last() else {
            return 0;
        };
        let in_last = CHUNK_VALUES - last.taken.leading_zeros() as usize;
        Slot::try_from((self.chunks.len() - 1) * CHUNK_VALUES + in_last).unwrap_or(Slot::MAX)
    }

    /// Adds the value. `None` if every number is taken.
    pub(super) fn insert(&mut self, value: T) -> Option<Slot> {
        let number = match self.with_room.first() {
            Some(number) => *number,
            None if self.chunks.len() >= SLOTS_MAX as usize / CHUNK_VALUES => return None,
            None => {
                self.chunks.push(Chunk::EMPTY);
                self.with_room.insert(self.chunks.len() - 1);
                self.chunks.len() - 1
            }
        };
        let chunk = self.chunks.get_mut(number)?;
        let place = chunk.insert(value)?;
        if chunk.taken == u64::MAX {
            self.with_room.remove(&number);
        }
        Slot::try_from(number * CHUNK_VALUES + place).ok()
    }

    /// The memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter();
        let values: usize = chunks.map(|chunk| chunk.values.len()).sum();
        self.chunks.capacity() * size_of::<Chunk<T>>() + values * size_of::<Option<T>>()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        let (chunk, place) = split(slot);
        self.chunks.get(chunk)?.values.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let (chunk, place) = split(slot);
        self.chunks.get_mut(chunk)?.values.get_mut(place)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let (number, place) = split(slot);
        let chunk = self.chunks.get_mut(number)?;
        let value = chunk.remove(place)?;
        self.with_room.insert(number);
        while self.chunks.last().is_some_and(|last| last.taken == 0) {
            self.chunks.pop();
            self.with_room.remove(&self.chunks.len());
        }
        if self.chunks.len() < self.chunks.capacity() / 8 {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        Some(value)
    }
}

impl<T> Chunk<T> {
    const EMPTY: Self = Self {
        values: Vec::new(),
        taken: 0,
    };

    /// Adds the value at the first free place. `None` if there is none.
    fn insert(&mut self, value: T) -> Option<usize> {
        if self.values.is_empty() {
            self.values = std::iter::repeat_with(|| None).take(CHUNK_VALUES).collect();
        }
        let place = self.taken.trailing_ones() as usize;
        *self.values.get_mut(place)? = Some(value);
        self.taken |= 1 << place;
        Some(place)
    }

    fn remove(&mut self, place: usize) -> Option<T> {
        let value = self.values.get_mut(place)?.take()?;
        self.taken &= !(1 << place);
        if self.taken == 0 {
            self.values = Vec::new();
        }
        Some(value)
    }
}

fn split(slot: Slot) -> (usize, usize) {
    let slot = slot as usize;
    (slot / CHUNK_VALUES, slot % CHUNK_VALUES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_again_after_its_value_is_gone() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..3000).filter_map(|n| slab.insert(n)).collect();
        assert_eq!(slots, (0..3000).collect::<Vec<_>>());
        assert_eq!(slab.end(), 3000);
        assert_eq!(slab.remove(1500), Some(1500));
        assert_eq!(slab.remove(1500), None);
        assert_eq!(slab.get(1500), None);
        assert_eq!(slab.insert(7), Some(1500));
        assert_eq!(slab.get_mut(1500).copied(), Some(7));
        assert_eq!(slab.get(3000), None);
        assert_eq!(slab.end(), 3000);
    }

    #[test]
    fn a_chunk_without_values_takes_no_memory() {
        let mut slab = Slab::new();
        for n in 0..3000 {
            slab.insert(n);
        }
        for n in (0..3000).filter(|n| *n != 1000) {
            slab.remove(n);
        }
        let held: usize = slab.chunks.iter().map(|chunk| chunk.values.len()).sum();
        assert_eq!((held, slab.end()), (CHUNK_VALUES, 1001));
        assert_eq!((slab.insert(7), slab.insert(8)), (Some(0), Some(1)));
        for n in [0, 1, 1000] {
            slab.remove(n);
        }
        assert_eq!((slab.end(), slab.chunks.capacity()), (0, 0));
        assert!(slab.with_room.is_empty());
    }
}
