//! The index over the records of one database: sessions by principal, instance, owner, digest, age, use and deadline.
//!
//! An index is updated with every record that is written, read or removed. It answers queries over many records: how
//! many sessions a principal holds, how full an instance is, which sessions exist, which tombstones need cleanup. It is
//! derived and may be outdated: a caller that acts on a result checks the record again.
//!
//! Invariants: every call does a bounded amount of work, whatever the number of sessions (see [`crate::limits`]).
//! Nothing here reads a clock: every call takes `now` as an argument, and a clock that steps back loses nothing.

mod departures;
mod directory;
mod due;
mod entry;
mod expiry;
mod filter;
mod glob;
mod groups;
mod held;
mod interner;
mod lookup;
mod orders;
mod page;
mod prefixes;
mod rounds;
mod search_part;
mod slab;
mod sweep;

pub use departures::Departures;
pub use directory::IndexCounts;
pub use due::Reaper;
pub use filter::Filter;
pub use glob::Glob;
pub use groups::{SessionCounts, StateCounts};
pub use lookup::Seed;
pub use page::{Cursor, Order, Page, PageEntry};
pub use prefixes::{PrefixError, PrefixId, Prefixes};
pub use search_part::SearchPart;

use directory::{Count, Directory};
use entry::{Entry, EntryNames, Sweep, UseRank};
use groups::KeyGroups;
use lookup::Lookup;
use orders::{Orders, Position};
use rounds::Rounds;
use slab::{Slab, Slot};

use crate::codec::BorrowedRecord;
use crate::limits::SETTLED_WITH_A_CHANGE_MAX;
use crate::names::{InstanceName, ServerName, WorkerId};
use crate::record::{Record, SessionLifetime, SessionState};
use crate::time::Timestamp;

/// The tag of keys: they need none.
const KEY_TAG: u32 = 0;

/// The index of one database.
#[derive(Debug)]
pub struct Index {
    seed: Seed,
    entries: Slab<Entry>,
    keys: Lookup,
    directory: Directory,
    orders: Orders,
    counts: IndexCounts,
    groups: KeyGroups,
    /// Where the next REAP of each pattern continues.
    rounds: Rounds,
    /// Up to where deadlines have passed: an entry counts as expired exactly if its deadline is not after this.
    frontier: Position,
    /// Expired sessions that are still to be reported.
    overdue: Vec<Box<[u8]>>,
    /// The rank of the latest use.
    latest_use: UseRank,
    /// The bytes of all keys.
    key_bytes: usize,
    /// The number of the current sweep.
    sweep: Sweep,
    /// The slot that the end of the current sweep has reached.
    swept: Slot,
}

impl Index {
    /// An empty index.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self {
            seed,
            entries: Slab::new(),
            keys: Lookup::new(),
            directory: Directory::new(seed),
            orders: Orders::default(),
            counts: IndexCounts::default(),
            groups: KeyGroups::default(),
            rounds: Rounds::default(),
            frontier: Position::FIRST,
            overdue: Vec::new(),
            latest_use: UseRank::default(),
            key_bytes: 0,
            sweep: 0,
            swept: 0,
        }
    }

    /// An empty index into which data is about to be loaded: [`end_loading`](Self::end_loading) builds its orders at
    /// once, which takes a fifth of the time. Until then it only has single keys, and no session expires.
    #[must_use]
    pub fn new_for_loading(seed: Seed, now: Timestamp) -> Self {
        let mut index = Self::new(seed);
        index.frontier = Position::end_of(now);
        index.orders.defer();
        index
    }

    /// Builds the deferred orders. The time is proportional to the number of entries: for a server that is not serving
    /// yet.
    pub fn end_loading(&mut self) {
        self.orders.make_deferred(&self.entries);
    }

    /// Adds or updates the record under `key` at `now`.
    pub fn put(&mut self, prefix: PrefixId, key: &[u8], record: &Record, now: Timestamp) {
        self.put_borrowed(prefix, key, &BorrowedRecord::of(record), now);
    }

    /// The same for a borrowed record.
    pub fn put_borrowed(
        &mut self,
        prefix: PrefixId,
        key: &[u8],
        record: &BorrowedRecord<'_>,
        now: Timestamp,
    ) {
        self.settle(now, SETTLED_WITH_A_CHANGE_MAX);
        let (used, sweep) = (self.rank(&record.lifetime, now), self.sweep);
        let hash = self.seed.hash(KEY_TAG, key);
        let Some(slot) = self.find_hashed(hash, key) else {
            let names = self.directory.acquire(prefix, record);
            let mut entry = Entry::new(key, names, record);
            entry.note(&record.lifetime, used, sweep, now);
            self.add_entry(hash, entry, now);
            return;
        };
        let entry = self.entries.get(slot);
        let is_renamed =
            !entry.is_some_and(|entry| self.directory.names_match(entry, prefix, record));
        let names = is_renamed.then(|| self.directory.acquire(prefix, record));
        let before = self.revise(slot, now, |entry| {
            if let Some(EntryNames {
                principal,
                bindings,
            }) = names
            {
                entry.principal = principal;
                entry.bindings = bindings;
            }
            entry.describe(record);
            entry.note(&record.lifetime, used, sweep, now);
        });
        // After the new names were acquired, so that names in both entries stay.
        if let Some(before) = before.filter(|_| is_renamed) {
            self.directory.leave(&before);
        }
    }

    /// Updates the lifetime of the record under `key`. Does nothing if the key is unknown.
    pub fn slide(&mut self, key: &[u8], lifetime: &SessionLifetime, now: Timestamp) {
        self.settle(now, SETTLED_WITH_A_CHANGE_MAX);
        let Some(slot) = self.find(key) else {
            return;
        };
        let (used, sweep) = (self.rank(lifetime, now), self.sweep);
        self.revise(slot, now, |entry| entry.note(lifetime, used, sweep, now));
    }

    /// Records a use that was not written, if the uses of its principal are tracked.
    pub fn note_use(&mut self, key: &[u8], now: Timestamp) {
        let Some(slot) = self.find(key) else {
            return;
        };
        let is_capped = |entry: &Entry| self.directory.is_capped(entry.principal);
        if !self.entries.get(slot).is_some_and(is_capped) {
            return;
        }
        let used = self.next_use(now);
        if let Some(entry) = self.entries.get_mut(slot) {
            self.orders.note_use(slot, entry, used);
        }
    }

    /// Whether the uses of any principal are tracked, because a cap of it was checked. Otherwise
    /// [`note_use`](Self::note_use) is not needed.
    #[must_use]
    pub const fn follows_uses(&self) -> bool {
        self.directory.has_caps()
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        if let Some(slot) = self.find(key) {
            self.remove_entry(slot);
        }
    }

    /// The sessions by state, as of the last [`advance`](Self::advance).
    #[must_use]
    pub const fn counts(&self) -> IndexCounts {
        self.counts
    }

    /// Whether the key is known.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// The state of the session under `key` at `now`; `None` if the key is unknown.
    #[must_use]
    pub fn state(&self, key: &[u8], now: Timestamp) -> Option<SessionState> {
        let entry = self.entries.get(self.find(key)?)?;
        Some(entry.state_at(now))
    }

    /// The approximate memory in bytes: exact for entries, keys and names, estimated for the orders.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
            + self.key_bytes
            + self.keys.bytes()
            + self.directory.bytes()
            + self.orders.bytes()
    }

    /// The bindings of active sessions to an instance.
    #[must_use]
    pub fn bound_to(&self, server: &ServerName, instance: &InstanceName) -> u64 {
        let place = self.directory.place(server, instance);
        let load = place.and_then(|place| self.directory.places.counts(place));
        load.map_or(0, |load| load.live.into())
    }

    /// The bindings of active sessions that a worker drives.
    #[must_use]
    pub fn driven_by(&self, worker: &WorkerId) -> u64 {
        let worker = self.directory.worker(worker);
        let duty = worker.and_then(|worker| self.directory.workers.counts(worker));
        duty.map_or(0, |duty| duty.driven.into())
    }

    fn find(&self, key: &[u8]) -> Option<Slot> {
        self.find_hashed(self.seed.hash(KEY_TAG, key), key)
    }

    fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        self.keys.find(hash, |slot| {
            self.entries
                .get(slot)
                .is_some_and(|entry| *entry.key == *key)
        })
    }

    /// Adds an entry whose key has this hash.
    fn add_entry(&mut self, hash: u64, entry: Entry, now: Timestamp) {
        let bytes = entry.key.len();
        let Some(slot) = self.entries.insert(entry) else {
            return;
        };
        self.key_bytes += bytes;
        let Self {
            seed,
            entries,
            keys,
            ..
        } = self;
        keys.insert(hash, slot, |other| hash_of(*seed, entries, other));
        if let Some(entry) = self.entries.get_mut(slot) {
            let expired = expiry::place(slot, entry, self.frontier, now);
            self.orders.insert(slot, entry);
            self.directory.count(entry, &mut self.counts, Count::In);
            self.groups.count(&entry.key, entry, Count::In);
            self.queue_expired(expired);
        }
    }

    /// Removes an entry, with everything that points to it.
    fn remove_entry(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.remove(slot)?;
        self.key_bytes -= entry.key.len();
        let Self {
            seed,
            entries,
            keys,
            ..
        } = self;
        let hash = seed.hash(KEY_TAG, &entry.key);
        keys.remove(hash, slot, |other| hash_of(*seed, entries, other));
        self.orders.remove(slot, &entry);
        self.directory.count(&entry, &mut self.counts, Count::Out);
        self.groups.count(&entry.key, &entry, Count::Out);
        self.directory.leave(&entry);
        Some(entry)
    }

    /// Changes an entry in anything but its key. Returns the previous entry, without its key.
    fn revise(
        &mut self,
        slot: Slot,
        now: Timestamp,
        change: impl FnOnce(&mut Entry),
    ) -> Option<Entry> {
        let entry = self.entries.get_mut(slot)?;
        let before = entry.without_key();
        change(entry);
        let expired = expiry::place(slot, entry, self.frontier, now);
        self.orders.replace(slot, &before, entry);
        if !before.counts_as(entry) {
            self.directory.count(&before, &mut self.counts, Count::Out);
            self.directory.count(entry, &mut self.counts, Count::In);
            self.groups.count(&entry.key, &before, Count::Out);
            self.groups.count(&entry.key, entry, Count::In);
        }
        self.queue_expired(expired);
        Some(before)
    }

    /// The rank of a lifetime in the order of use. A use at this moment ranks after all earlier ones.
    fn rank(&mut self, lifetime: &SessionLifetime, now: Timestamp) -> UseRank {
        if lifetime.last_used_at == now && lifetime.state(now) == SessionState::Active {
            return self.next_use(now);
        }
        let used = UseRank::at(lifetime.last_used_at.min(now));
        self.latest_use = self.latest_use.max(used);
        used
    }

    fn next_use(&mut self, now: Timestamp) -> UseRank {
        self.latest_use = self.latest_use.next().max(UseRank::at(now));
        self.latest_use
    }
}

fn hash_of(seed: Seed, entries: &Slab<Entry>, slot: Slot) -> u64 {
    let entry = entries.get(slot);
    entry.map_or(0, |entry| seed.hash(KEY_TAG, &entry.key))
}
