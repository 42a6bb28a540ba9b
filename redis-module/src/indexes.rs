//! The indexes of this node, one per database, and the prefixes of the keys that they contain.
//!
//! Invariant: all indexes use the same prefixes. A change of the setting resets them, because they store the numbers of
//! prefixes; until then, keys under new prefixes are ignored.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

use mooring_session::StepProgress;
use mooring_session::codec::BorrowedRecord;
use mooring_session::index::{Index, IndexCounts, PrefixId, Prefixes, Seed};
use mooring_session::names::WorkerId;
use mooring_session::record::{SessionLifetime, SessionState};
use mooring_session::time::Timestamp;

use crate::settings;

/// The indexes of this node.
pub(crate) struct Indexes {
    seed: Seed,
    prefixes: Option<Prefixes>,
    /// The version of the setting that `prefixes` was made from.
    version: u64,
    by_database: BTreeMap<i32, Index>,
    /// Since when the server loads its data in place.
    loading_since: Option<Timestamp>,
    /// Dropped indexes, to be freed in steps: a million entries take longer than a command may.
    dropped: Vec<Index>,
}

/// How many entries are freed between two reads of the clock.
const FREED_AT_ONCE: usize = 256;

impl Indexes {
    /// Empty indexes, with the current prefixes.
    pub(crate) fn new() -> Self {
        let random = || RandomState::new().hash_one(0_u8);
        Self {
            seed: Seed([random(), random()]),
            version: settings::prefixes::version(),
            prefixes: prefixes(),
            by_database: BTreeMap::new(),
            loading_since: None,
            dropped: Vec::new(),
        }
    }

    /// Empties the indexes, and takes the current prefixes.
    pub(crate) fn reset(&mut self) {
        self.drop(None);
        self.version = settings::prefixes::version();
        self.prefixes = prefixes();
    }

    /// Whether the prefixes are those of the setting.
    pub(crate) fn are_prefixes_current(&self) -> bool {
        self.version == settings::prefixes::version()
    }

    /// The prefix that a key belongs to.
    pub(crate) fn prefix_of(&self, key: &[u8]) -> Option<PrefixId> {
        self.prefixes.as_ref()?.of(key)
    }

    /// Adds or updates the record under `key`.
    pub(crate) fn put(
        &mut self,
        database: i32,
        key: &[u8],
        record: &BorrowedRecord<'_>,
        now: Timestamp,
    ) {
        if let Some(prefix) = self.prefix_of(key) {
            self.of_mut(database).put_borrowed(prefix, key, record, now);
        }
    }

    /// Updates the lifetime of a record.
    pub(crate) fn slide(
        &mut self,
        database: i32,
        key: &[u8],
        lifetime: &SessionLifetime,
        now: Timestamp,
    ) {
        if let Some(index) = self.by_database.get_mut(&database) {
            index.slide(key, lifetime, now);
        }
    }

    /// Records a use that was not written, if a cap needs the order of use.
    pub(crate) fn note_use(&mut self, database: i32, key: &[u8], now: Timestamp) {
        if let Some(index) = self.by_database.get_mut(&database)
            && index.follows_uses()
        {
            index.note_use(key, now);
        }
    }

    /// Removes a key that does not exist any more, or is not that of a session.
    pub(crate) fn remove(&mut self, database: i32, key: &[u8]) {
        if let Some(index) = self.by_database.get_mut(&database) {
            index.remove(key);
        }
    }

    /// The index of a database, if a record was ever seen there.
    pub(crate) fn of(&self, database: i32) -> Option<&Index> {
        self.by_database.get(&database)
    }

    /// The same, for a query that records its progress.
    pub(crate) fn known_mut(&mut self, database: i32) -> Option<&mut Index> {
        self.by_database.get_mut(&database)
    }

    /// The index of a database.
    pub(crate) fn of_mut(&mut self, database: i32) -> &mut Index {
        let new = || match self.loading_since {
            Some(now) => Index::new_for_loading(self.seed, now),
            None => Index::new(self.seed),
        };
        self.by_database.entry(database).or_insert_with(new)
    }

    /// The server starts to load its data in place.
    pub(crate) const fn begin_loading(&mut self, now: Timestamp) {
        self.loading_since = Some(now);
    }

    /// Loading has ended or failed.
    pub(crate) fn end_loading(&mut self) {
        self.loading_since = None;
        self.by_database.values_mut().for_each(Index::end_loading);
    }

    /// The databases that have an index.
    pub(crate) fn databases(&self) -> Vec<i32> {
        self.by_database.keys().copied().collect()
    }

    /// Drops the index of a database, or of all.
    pub(crate) fn drop(&mut self, database: Option<i32>) {
        let gone = match database {
            Some(database) => {
                let index = self.by_database.remove(&database);
                index.map(|index| (database, index)).into_iter().collect()
            }
            None => std::mem::take(&mut self.by_database),
        };
        for mut index in gone.into_values() {
            index.begin_sweep();
            self.dropped.push(index);
        }
    }

    /// The sessions of all databases, and the bindings of the active ones.
    pub(crate) fn counts(&self) -> IndexCounts {
        let mut sum = IndexCounts::default();
        for index in self.by_database.values() {
            let counts = index.counts();
            sum.active += counts.active;
            sum.expired += counts.expired;
            sum.ended += counts.ended;
            sum.bindings_active += counts.bindings_active;
        }
        sum
    }

    /// The approximate memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let indexes = self.by_database.values().chain(&self.dropped);
        indexes.map(|index| index.bytes() as u64).sum()
    }

    /// Whether the session under a key is known.
    pub(crate) fn has(&self, database: i32, key: &[u8]) -> bool {
        let index = self.by_database.get(&database);
        index.is_some_and(|index| index.has(key))
    }

    /// The state of the session under a key, if it is known.
    pub(crate) fn state(&self, database: i32, key: &[u8], now: Timestamp) -> Option<SessionState> {
        self.by_database.get(&database)?.state(key, now)
    }

    /// The bindings of active sessions that a worker drives, in all databases.
    pub(crate) fn driven_by(&self, worker: &WorkerId) -> u64 {
        let indexes = self.by_database.values();
        indexes.map(|index| index.driven_by(worker)).sum()
    }

    /// Frees dropped indexes until `until`. Returns whether there is more.
    pub(crate) fn free_dropped_until(&mut self, until: Instant) -> bool {
        while let Some(index) = self.dropped.last_mut() {
            if Instant::now() >= until {
                return true;
            }
            if index.end_sweep(FREED_AT_ONCE) == StepProgress::Done {
                self.dropped.pop();
            }
        }
        false
    }

    /// Two databases were swapped.
    pub(crate) fn swap(&mut self, first: i32, second: i32) {
        let of_first = self.by_database.remove(&first);
        let of_second = self.by_database.remove(&second);
        self.by_database
            .extend(of_first.map(|index| (second, index)));
        self.by_database
            .extend(of_second.map(|index| (first, index)));
    }
}

/// `None` if the setting is not a valid list, which the setting refuses: then nothing is indexed.
fn prefixes() -> Option<Prefixes> {
    let text = settings::prefixes::text();
    Prefixes::new(text.split(' ').map(str::as_bytes)).ok()
}
