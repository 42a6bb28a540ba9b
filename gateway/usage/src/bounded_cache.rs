//! A cache in bounded memory, in two generations: a use moves an entry to the young one, and [`BoundedCache::peek`] is no
//! use. When the young one is full it becomes the old one, and the old one, up to half of the cache, is dropped at once:
//! what was not used since.
//!
//! Invariant: it never has more entries than its maximum, and no operation walks through them.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// At most so many entries; those that were used lately stay.
#[derive(Debug)]
pub struct BoundedCache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    generation_max: usize,
}

impl<K: Eq + Hash, V> BoundedCache<K, V> {
    /// An empty cache for at most `entries_max` entries, at least two.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            generation_max: (entries_max / 2).max(1),
        }
    }

    /// The entry, which counts as used.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get(key)
    }

    /// The entry, which does not count as used.
    pub fn peek<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Adds or replaces an entry, which counts as used.
    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.generation_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Removes an entry.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let mut cache = BoundedCache::new(10);
        cache.insert("used", 0);
        for number in 0..100_u32 {
            let key: &'static str = Box::leak(number.to_string().into_boxed_str());
            cache.insert(key, number);
            assert_eq!(cache.get("used"), Some(&0), "{number}");
            assert!(cache.len() <= 10, "{number}");
        }
        assert_eq!(cache.get("0"), None);
        assert_eq!(cache.get("99"), Some(&99));
    }

    #[test]
    fn an_entry_is_there_once() {
        let mut cache = BoundedCache::new(4);
        for (key, value) in [("a", 1), ("b", 2), ("c", 3), ("a", 4)] {
            cache.insert(key, value);
        }
        assert_eq!((cache.peek("a"), cache.len()), (Some(&4), 3));
        assert_eq!(cache.remove("a"), Some(4));
        assert_eq!(cache.peek("a"), None);
        cache.clear();
        assert!(cache.is_empty());
    }

    #[test]
    fn what_is_only_looked_at_does_not_stay() {
        let mut cache = BoundedCache::new(4);
        for key in ["a", "b", "c", "d"] {
            cache.insert(key, ());
            assert!(cache.peek("a").is_some(), "{key}");
        }
        cache.insert("e", ());
        assert!(cache.peek("a").is_none());
    }
}
