//! Names that many sessions share: each is stored once, under a small number, until its last reference is released.
//!
//! Invariant: a referenced symbol is not assigned to another name. Every name is stored with its counters, so that
//! counting needs no search.

use super::lookup::{Lookup, Seed};
use super::slab::{SLOTS_MAX, Slab, Slot};

/// The number of a name. Symbols of different interners are unrelated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Symbol(Slot);

impl Symbol {
    /// The symbol of names if every number is taken. It is never found and has no counters.
    const NAMELESS: Self = Self(SLOTS_MAX);

    /// The number itself, as the tag of names that belong to this one.
    pub(super) const fn tag(self) -> u32 {
        self.0
    }

    /// The symbol that a tag was made of.
    pub(super) const fn of_tag(tag: u32) -> Self {
        Self(tag)
    }
}

/// Names with the counters of each.
#[derive(Debug)]
pub(super) struct Interner<C> {
    seed: Seed,
    names: Slab<Name<C>>,
    lookup: Lookup,
    /// The bytes of all texts.
    text_bytes: usize,
}

#[derive(Debug)]
struct Name<C> {
    text: Box<str>,
    /// Distinguishes equal texts with different meanings.
    tag: u32,
    references: u32,
    counts: C,
}

impl<C: Default> Interner<C> {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            names: Slab::new(),
            lookup: Lookup::new(),
            text_bytes: 0,
        }
    }

    /// The name's symbol, with a new reference to it.
    pub(super) fn acquire(&mut self, tag: u32, text: &str) -> Symbol {
        let hash = self.seed.hash(tag, text.as_bytes());
        if let Some(slot) = self.slot_of(hash, tag, text) {
            if let Some(name) = self.names.get_mut(slot) {
                name.references = name.references.saturating_add(1);
            }
            return Symbol(slot);
        }
        let name = Name {
            text: text.into(),
            tag,
            references: 1,
            counts: C::default(),
        };
        let Some(slot) = self.names.insert(name) else {
            return Symbol::NAMELESS;
        };
        self.text_bytes += text.len();
        let Self {
            seed,
            names,
            lookup,
            ..
        } = self;
        lookup.insert(hash, slot, |other| hash_of(*seed, names, other));
        Symbol(slot)
    }

    /// Releases one reference. The last one removes the name; then this returns its counters.
    pub(super) fn release(&mut self, symbol: Symbol) -> Option<C> {
        let name = self.names.get_mut(symbol.0)?;
        name.references = name.references.saturating_sub(1);
        if name.references > 0 {
            return None;
        }
        let name = self.names.remove(symbol.0)?;
        self.text_bytes -= name.text.len();
        let Self {
            seed,
            names,
            lookup,
            ..
        } = self;
        let hash = seed.hash(name.tag, name.text.as_bytes());
        lookup.remove(hash, symbol.0, |other| hash_of(*seed, names, other));
        Some(name.counts)
    }

    /// The memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.names.bytes() + self.lookup.bytes() + self.text_bytes
    }

    /// The number of references to the name.
    pub(super) fn references(&self, symbol: Symbol) -> usize {
        let name = self.names.get(symbol.0);
        name.map_or(0, |name| name.references as usize)
    }

    /// The symbol of a name, if it has references.
    pub(super) fn find(&self, tag: u32, text: &str) -> Option<Symbol> {
        let hash = self.seed.hash(tag, text.as_bytes());
        self.slot_of(hash, tag, text).map(Symbol)
    }

    fn slot_of(&self, hash: u64, tag: u32, text: &str) -> Option<Slot> {
        self.lookup
            .find(hash, |slot| self.is(Symbol(slot), tag, text))
    }

    /// Whether the symbol is this name's.
    pub(super) fn is(&self, symbol: Symbol, tag: u32, text: &str) -> bool {
        let name = self.names.get(symbol.0);
        name.is_some_and(|name| name.tag == tag && *name.text == *text)
    }

    /// The name's text.
    pub(super) fn text(&self, symbol: Symbol) -> Option<&str> {
        self.names.get(symbol.0).map(|name| &*name.text)
    }

    /// The tag that the name was acquired with.
    pub(super) fn tag(&self, symbol: Symbol) -> Option<u32> {
        self.names.get(symbol.0).map(|name| name.tag)
    }

    /// The counters of the name.
    pub(super) fn counts(&self, symbol: Symbol) -> Option<&C> {
        self.names.get(symbol.0).map(|name| &name.counts)
    }

    /// The same, mutable.
    pub(super) fn counts_mut(&mut self, symbol: Symbol) -> Option<&mut C> {
        self.names.get_mut(symbol.0).map(|name| &mut name.counts)
    }

    /// Every symbol that a name may have.
    pub(super) fn symbols(&self) -> impl Iterator<Item = Symbol> {
        (0..self.names.end()).map(Symbol)
    }

    /// How many those are.
    pub(super) fn symbols_len(&self) -> usize {
        self.names.end() as usize
    }
}

fn hash_of<C>(seed: Seed, names: &Slab<Name<C>>, slot: Slot) -> u64 {
    let name = names.get(slot);
    name.map_or(0, |name| seed.hash(name.tag, name.text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once_and_goes_with_its_last_reference() {
        let mut names = Interner::<u64>::new(Seed([1, 2]));
        let alice = names.acquire(0, "alice");
        assert_eq!(names.acquire(0, "alice"), alice);
        let other_alice = names.acquire(1, "alice");
        assert_ne!(other_alice, alice);
        assert_eq!(names.text(alice), Some("alice"));
        assert_eq!(names.tag(other_alice), Some(1));
        if let Some(count) = names.counts_mut(alice) {
            *count += 5;
        }
        names.release(alice);
        assert_eq!(names.find(0, "alice"), Some(alice));
        names.release(alice);
        assert_eq!(names.find(0, "alice"), None);
        assert_eq!(names.find(1, "alice"), Some(other_alice));
        // The number is free for another name, whose counters start at zero.
        let bob = names.acquire(0, "bob");
        assert_eq!((bob, names.counts(bob)), (alice, Some(&0)));
        assert_eq!(names.symbols_len(), 2);
    }

    #[test]
    fn the_nameless_symbol_is_harmless() {
        let mut names = Interner::<u64>::new(Seed([1, 2]));
        names.release(Symbol::NAMELESS);
        assert_eq!(names.text(Symbol::NAMELESS), None);
        assert_eq!(names.counts(Symbol::NAMELESS), None);
    }
}
