//! Which indexes are complete, which are verified, and the progress of the walks over the others.
//!
//! Invariants: an index is used and updated during a walk, but reported as incomplete. Caps and placement rely on an
//! index that is verified, because it was updated all the time, and not on one that is filled.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::ffi::Scan;

/// Why indexes are rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildCause {
    /// The module was loaded into a server with data.
    Loaded,
    /// An operator asked for it.
    Asked,
    /// The prefixes in the setting were changed.
    Prefixes,
    /// This node was promoted.
    Promoted,
    /// A full synchronization replaced the data, or was aborted.
    Synchronized,
    /// Loading the data failed.
    LoadingFailed,
    /// The wall clock was set.
    ClockStep,
    /// Events were missed, or a defect may have left an index inconsistent.
    Inconsistent,
}

impl RebuildCause {
    /// The cause in words, for the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "the module was loaded into a server with data",
            Self::Asked => "an operator asked for it",
            Self::Prefixes => "the prefixes were changed",
            Self::Promoted => "this node was promoted",
            Self::Synchronized => "a full synchronization ended",
            Self::LoadingFailed => "loading the data failed",
            Self::ClockStep => "the wall clock was set",
            Self::Inconsistent => "they may be inconsistent",
        }
    }

    /// What the walk is for.
    pub(crate) const fn purpose(self) -> WalkPurpose {
        match self {
            // The index was updated until now, and no key was lost.
            Self::Asked | Self::Promoted | Self::ClockStep => WalkPurpose::Verify,
            Self::Loaded
            | Self::Prefixes
            | Self::Synchronized
            | Self::LoadingFailed
            | Self::Inconsistent => WalkPurpose::Fill,
        }
    }
}

/// What a walk over the keys of a database is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WalkPurpose {
    /// The index holds every session. The walk corrects what an event missed.
    Verify,
    /// Sessions may be missing until the walk is done.
    Fill,
}

/// Which indexes wait for a walk, and the current walk.
#[derive(Default)]
pub(crate) struct RebuildState {
    /// Databases that wait for their walk.
    waiting: BTreeMap<i32, WalkPurpose>,
    walk: Option<IndexWalk>,
    /// The data is being loaded in place: every key sends an event, and all indexes are complete at the end.
    is_loading: bool,
}

/// A rebuild in progress: a walk over the keys of one database.
pub(crate) struct IndexWalk {
    /// The database.
    pub(crate) database: i32,
    purpose: WalkPurpose,
    /// What the next step does.
    pub(crate) stage: WalkStage,
    /// How many keys it has visited.
    pub(crate) keys: u64,
    /// How many of them were read, because they are under one of the prefixes.
    pub(crate) sessions: u64,
    /// When the walk started.
    pub(crate) started: Instant,
    /// When its progress was last logged.
    pub(crate) reported: Instant,
}

/// What a step of a walk does.
pub(crate) enum WalkStage {
    /// Reads the keys of the database into the index.
    Scan(Scan),
    /// Removes the index entries whose keys were not found.
    Sweep,
}

impl RebuildState {
    /// Whether the index of a database is complete, according to the events.
    pub(crate) fn is_whole(&self, database: i32) -> bool {
        !self.is_loading && self.purpose_of(database) != Some(WalkPurpose::Fill)
    }

    /// Whether the index of a database is complete, and no walk verifies it.
    pub(crate) fn is_verified(&self, database: i32) -> bool {
        !self.is_loading && self.purpose_of(database).is_none()
    }

    /// Whether the index of every database is complete, and no walk verifies any.
    pub(crate) fn has_nothing_to_do(&self) -> bool {
        !self.is_loading && !self.is_running()
    }

    /// Whether any index is being rebuilt.
    pub(crate) fn is_running(&self) -> bool {
        self.walk.is_some() || !self.waiting.is_empty()
    }

    /// How many databases are walked over or wait for it.
    pub(crate) fn databases(&self) -> usize {
        self.waiting.len() + usize::from(self.walk.is_some())
    }

    /// How many keys the current walk has read.
    pub(crate) fn keys(&self) -> u64 {
        self.walk.as_ref().map_or(0, |walk| walk.keys)
    }

    /// Whether the server is loading data in place. No index is rebuilt during that time.
    pub(crate) const fn is_loading(&self) -> bool {
        self.is_loading
    }

    fn walks_over(&self, database: i32) -> bool {
        self.walk
            .as_ref()
            .is_some_and(|walk| walk.database == database)
    }

    /// The purpose of the current or pending walk over a database.
    fn purpose_of(&self, database: i32) -> Option<WalkPurpose> {
        let walk = self.walk.as_ref().filter(|walk| walk.database == database);
        walk.map(|walk| walk.purpose)
            .or_else(|| self.waiting.get(&database).copied())
    }

    /// Requests a walk over a database from its first key. An index that is being filled stays one that has to be
    /// filled.
    pub(crate) fn request(&mut self, database: i32, purpose: WalkPurpose) {
        let purpose = purpose.max(self.purpose_of(database).unwrap_or(WalkPurpose::Verify));
        if self.walks_over(database) {
            self.walk = None;
        }
        self.waiting.insert(database, purpose);
    }

    /// A database, or all, is about to be emptied: its index is complete without a walk.
    pub(crate) fn cancel(&mut self, database: Option<i32>) {
        match database {
            None => {
                self.waiting.clear();
                self.walk = None;
            }
            Some(database) => {
                self.waiting.remove(&database);
                if self.walks_over(database) {
                    self.walk = None;
                }
            }
        }
    }

    /// Two databases were swapped, and their indexes with them. A walk over one of them starts again.
    pub(crate) fn swap(&mut self, first: i32, second: i32) {
        let (of_first, of_second) = (self.purpose_of(first), self.purpose_of(second));
        self.cancel(Some(first));
        self.cancel(Some(second));
        if let Some(purpose) = of_first {
            self.request(second, purpose);
        }
        if let Some(purpose) = of_second {
            self.request(first, purpose);
        }
    }

    /// Puts back an unfinished walk.
    pub(crate) fn put_back(&mut self, walk: IndexWalk) {
        self.walk = Some(walk);
    }

    /// Loading in place starts or ends.
    pub(crate) fn set_loading(&mut self, is_loading: bool) {
        self.is_loading = is_loading;
    }

    /// Takes the walk to continue: the current one, or one over the next database.
    pub(crate) fn take_walk(&mut self) -> Option<IndexWalk> {
        self.walk.take().or_else(|| {
            let now = Instant::now();
            let (database, purpose) = self.waiting.pop_first()?;
            Some(IndexWalk {
                database,
                purpose,
                stage: WalkStage::Scan(Scan::new()),
                keys: 0,
                sessions: 0,
                started: now,
                reported: now,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILL: WalkPurpose = WalkPurpose::Fill;

    fn waiting(databases: &[i32]) -> RebuildState {
        RebuildState {
            waiting: databases.iter().map(|database| (*database, FILL)).collect(),
            ..RebuildState::default()
        }
    }

    #[test]
    fn what_is_not_whole_changes_places_with_its_database() {
        let mut rebuild = waiting(&[0, 5]);
        rebuild.swap(0, 1);
        assert_eq!(rebuild.waiting, [(1, FILL), (5, FILL)].into());
        rebuild.swap(1, 5);
        assert_eq!(rebuild.waiting, [(1, FILL), (5, FILL)].into());
        rebuild.swap(2, 3);
        assert_eq!(rebuild.waiting, [(1, FILL), (5, FILL)].into());
    }

    #[test]
    fn an_index_that_is_verified_is_whole_and_one_that_is_filled_is_not() {
        let mut rebuild = RebuildState::default();
        rebuild.request(0, WalkPurpose::Verify);
        assert!(rebuild.is_whole(0) && !rebuild.is_verified(0));
        rebuild.request(0, FILL);
        assert!(!rebuild.is_whole(0));
        // A walk that verifies an index that is being filled fills it.
        rebuild.request(0, WalkPurpose::Verify);
        assert!(!rebuild.is_whole(0));
        rebuild.cancel(Some(0));
        assert!(rebuild.is_whole(0) && rebuild.is_verified(0));
    }

    #[test]
    fn an_emptied_database_needs_no_walk() {
        let mut rebuild = waiting(&[0, 5]);
        assert!(!rebuild.is_whole(5) && rebuild.is_running());
        rebuild.cancel(Some(5));
        assert!(rebuild.is_whole(5) && !rebuild.is_whole(0));
        rebuild.cancel(None);
        assert!(!rebuild.is_running());
    }

    #[test]
    fn nothing_is_whole_while_the_data_is_loaded() {
        let mut rebuild = RebuildState::default();
        rebuild.set_loading(true);
        assert!(!rebuild.is_whole(0));
        rebuild.set_loading(false);
        assert!(rebuild.is_whole(0));
    }
}
