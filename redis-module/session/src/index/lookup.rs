//! A map from bytes that clients choose to slots.
//!
//! Invariants: the bytes are hashed with a key that clients do not know, so that they cannot choose names that collide.
//! The table is divided into parts that grow and shrink one by one, so that one change rehashes only a small part of
//! it.

use std::hash::Hasher as _;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::slab::Slot;

/// Parts of one table: of a million names, each part holds about a thousand.
const PARTS: usize = 1024;

/// The secret key of the hashes. The creator of an index chooses it at random.
#[derive(Clone, Copy)]
pub struct Seed(pub [u64; 2]);

impl std::fmt::Debug for Seed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Seed(secret)")
    }
}

impl Seed {
    /// The hash of a name: of its tag and its bytes.
    pub(super) fn hash(self, tag: u32, bytes: &[u8]) -> u64 {
        let [first, second] = self.0;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write_u32(tag);
        hasher.write(bytes);
        hasher.finish()
    }
}

/// Slots by the hash of their contents. The caller compares the contents.
#[derive(Debug)]
pub(super) struct Lookup {
    parts: Box<[HashTable<Slot>]>,
}

impl Lookup {
    pub(super) fn new() -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashTable::new()).collect(),
        }
    }

    /// The slot with this hash for which `is_it` returns true.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let part = self.parts.get(part(hash))?;
        part.find(hash, |slot| is_it(*slot)).copied()
    }

    /// Adds a slot that is not in the table. `hash_of` returns the hash of any slot's contents.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot, hash_of: impl Fn(Slot) -> u64) {
        if let Some(part) = self.parts.get_mut(part(hash)) {
            part.insert_unique(hash, slot, |slot| hash_of(*slot));
        }
    }

    /// The memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let tables: usize = self.parts.iter().map(HashTable::allocation_size).sum();
        tables + size_of_val(&*self.parts)
    }

    /// Removes a slot. A part that is mostly empty then frees memory: it rehashes fewer slots than were removed from
    /// it.
    pub(super) fn remove(&mut self, hash: u64, slot: Slot, hash_of: impl Fn(Slot) -> u64) {
        let Some(part) = self.parts.get_mut(part(hash)) else {
            return;
        };
        if let Ok(entry) = part.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        if part.len() <= part.capacity() / 8 {
            part.shrink_to(2 * part.len(), |slot| hash_of(*slot));
        }
    }
}

/// Bits from the middle: the hash table itself uses the lowest and the highest ones.
const fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed([1, 2]);

    fn hash_of(slot: Slot) -> u64 {
        SEED.hash(0, format!("key-{slot}").as_bytes())
    }

    #[test]
    fn slots_are_found_until_they_are_removed() {
        let mut lookup = Lookup::new();
        for slot in 0..5000 {
            lookup.insert(hash_of(slot), slot, hash_of);
        }
        for slot in (0..5000).step_by(2) {
            lookup.remove(hash_of(slot), slot, hash_of);
        }
        for slot in 0..5000 {
            let found = lookup.find(hash_of(slot), |other| other == slot);
            assert_eq!(found, (slot % 2 == 1).then_some(slot));
        }
        for slot in (1..5000).step_by(2).filter(|slot| *slot != 77) {
            lookup.remove(hash_of(slot), slot, hash_of);
        }
        assert_eq!(lookup.find(hash_of(77), |other| other == 77), Some(77));
        let room: usize = lookup.parts.iter().map(HashTable::capacity).sum();
        assert!(room < 10, "room for {room} names is held for one");
    }

    #[test]
    fn tag_and_seed_change_the_hash() {
        assert_ne!(SEED.hash(0, b"a"), SEED.hash(1, b"a"));
        assert_ne!(SEED.hash(0, b"a"), Seed([3, 2]).hash(0, b"a"));
    }
}
