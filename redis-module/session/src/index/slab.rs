//! Values under small numbers that stay theirs while the value lives and are given again afterwards.
//!
//! Invariant: no step moves the values that are there. They stand in chunks, because a vector of a million entries that
//! doubles would copy them all within one command.

/// Values per chunk.
const CHUNK_VALUES: usize = 1024;

/// The number of a value in a [`Slab`].
pub(super) type Slot = u32;

/// Every slot is below this number, which leaves a bit of its type to whoever wants to say one thing more with it.
pub(super) const SLOTS_MAX: Slot = Slot::MAX / 2;

/// Numbered values.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Every slot ever given is below this number.
    pub(super) fn end(&self) -> Slot {
        let in_last = self.chunks.last().map_or(0, Vec::len);
        let full = self.chunks.len().saturating_sub(1);
        Slot::try_from(full * CHUNK_VALUES + in_last).unwrap_or(Slot::MAX)
    }

    /// Takes the value in. None when every number is taken.
    pub(super) fn insert(&mut self, value: T) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            *self.place(slot)? = Some(value);
            return Some(slot);
        }
        let slot = self.end();
        if slot >= SLOTS_MAX {
            return None;
        }
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_VALUES => chunk.push(Some(value)),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_VALUES);
                chunk.push(Some(value));
                self.chunks.push(chunk);
            }
        }
        Some(slot)
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        let (chunk, place) = split(slot);
        self.chunks.get(chunk)?.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.place(slot)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.place(slot)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    fn place(&mut self, slot: Slot) -> Option<&mut Option<T>> {
        let (chunk, place) = split(slot);
        self.chunks.get_mut(chunk)?.get_mut(place)
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
}
