//! Which indexes are complete, and how far the rebuild of the others is.
//!
//! Invariant: an index that is being rebuilt is used and updated meanwhile, but reported as incomplete.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::ffi::Scan;

/// Why indexes are rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildCause {
    /// The module was loaded into a server with data.
    Loaded,
    /// An operator asked for it.
    Asked,
    /// The setting says other prefixes.
    Prefixes,
    /// This node was promoted.
    Promoted,
    /// A full synchronization put other data in place, or broke off.
    Synchronized,
    /// The data could not be loaded to its end.
    LoadingFailed,
    /// The wall clock was set.
    ClockStep,
    /// Events were missed, or a defect left an index in doubt.
    Doubt,
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
            Self::Doubt => "they are in doubt",
        }
    }
}

/// Which indexes are incomplete, and the walk that completes one of them.
#[derive(Default)]
pub(crate) struct RebuildState {
    /// Databases whose turn has not come.
    waiting: BTreeSet<i32>,
    walk: Option<IndexWalk>,
    /// The data is being loaded in place: every key tells of itself, and all indexes are whole in the end.
    is_loading: bool,
}

/// A rebuild that is under way: a walk over the keys of one database.
pub(crate) struct IndexWalk {
    /// The database.
    pub(crate) database: i32,
    /// What the next step does.
    pub(crate) stage: WalkStage,
    /// How many keys were read.
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
    /// Whether the index of a database holds all that is in it.
    pub(crate) fn is_whole(&self, database: i32) -> bool {
        !self.is_loading && !self.waiting.contains(&database) && !self.walks_over(database)
    }

    /// Whether the index of every database holds all that is in it.
    pub(crate) fn has_nothing_to_do(&self) -> bool {
        !self.is_loading && !self.is_running()
    }

    /// Whether any index is being rebuilt.
    pub(crate) fn is_running(&self) -> bool {
        self.walk.is_some() || !self.waiting.is_empty()
    }

    /// Whether the server is loading data in place. Nothing is rebuilt meanwhile.
    pub(crate) const fn is_loading(&self) -> bool {
        self.is_loading
    }

    fn walks_over(&self, database: i32) -> bool {
        self.walk
            .as_ref()
            .is_some_and(|walk| walk.database == database)
    }

    /// Lets a database be walked over from its first key.
    pub(crate) fn request(&mut self, database: i32) {
        if self.walks_over(database) {
            self.walk = None;
        }
        self.waiting.insert(database);
    }

    /// A database, or all, is about to be empty: its index is whole without a walk.
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

    /// Two databases have changed places, and their indexes with them. A walk over one begins again.
    pub(crate) fn swap(&mut self, first: i32, second: i32) {
        let was_whole = |rebuild: &Self, database| {
            !rebuild.waiting.contains(&database) && !rebuild.walks_over(database)
        };
        let (first_was_whole, second_was_whole) = (was_whole(self, first), was_whole(self, second));
        self.cancel(Some(first));
        self.cancel(Some(second));
        if !first_was_whole {
            self.request(second);
        }
        if !second_was_whole {
            self.request(first);
        }
    }

    /// Puts back a walk that is not finished.
    pub(crate) fn put_back(&mut self, walk: IndexWalk) {
        self.walk = Some(walk);
    }

    /// Loading in place begins or ends.
    pub(crate) fn set_loading(&mut self, is_loading: bool) {
        self.is_loading = is_loading;
    }

    /// Takes the walk that is to continue: the one under way, or one over the next database.
    pub(crate) fn take_walk(&mut self) -> Option<IndexWalk> {
        self.walk.take().or_else(|| {
            let now = Instant::now();
            Some(IndexWalk {
                database: self.waiting.pop_first()?,
                stage: WalkStage::Scan(Scan::new()),
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

    fn waiting(databases: &[i32]) -> RebuildState {
        RebuildState {
            waiting: databases.iter().copied().collect(),
            ..RebuildState::default()
        }
    }

    #[test]
    fn what_is_not_whole_changes_places_with_its_database() {
        let mut rebuild = waiting(&[0, 5]);
        rebuild.swap(0, 1);
        assert_eq!(rebuild.waiting, [1, 5].into());
        rebuild.swap(1, 5);
        assert_eq!(rebuild.waiting, [1, 5].into());
        rebuild.swap(2, 3);
        assert_eq!(rebuild.waiting, [1, 5].into());
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
