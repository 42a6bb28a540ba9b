//! Indexes made whole: a walk over the keys of a database, in the background.
//!
//! The walk reads every key anew, and what the index held and the walk did not see is then removed; so a rebuild also
//! proves an index that was fed all the time. Invariants: a step takes as long as it is given and no longer than one
//! record more; an index that is being rebuilt is used and fed meanwhile, but said to be incomplete.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mooring_session::index::Swept;

use crate::ffi::{Context, Level, OwnedText, Scan, ScanState};
use crate::keyspace;
use crate::module::Module;

/// How many entries are swept between two looks at the clock.
const SWEPT_AT_ONCE: usize = 256;
/// How often a long walk says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Most databases looked at. Servers are run with 16, and with more only by mistake.
const DATABASES_MAX: i32 = 65_536;

/// Why indexes are rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The module was loaded into a server with data.
    Loaded,
    /// An operator asked for it.
    Asked,
    /// The setting says other prefixes.
    Prefixes,
    /// This node was promoted.
    Promoted,
    /// A full synchronisation put other data in place, or broke off.
    Synchronised,
    /// The data could not be loaded to its end.
    LoadingFailed,
    /// The wall clock was set.
    ClockStep,
    /// Events were missed, or a defect left an index in doubt.
    Doubt,
}

impl Cause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "the module was loaded into a server with data",
            Self::Asked => "an operator asked for it",
            Self::Prefixes => "the prefixes were changed",
            Self::Promoted => "this node was promoted",
            Self::Synchronised => "a full synchronisation came to its end",
            Self::LoadingFailed => "loading the data failed",
            Self::ClockStep => "the wall clock was set",
            Self::Doubt => "they are in doubt",
        }
    }
}

/// Which indexes are not whole, and the walk that makes one of them so.
#[derive(Default)]
pub(crate) struct Rebuild {
    /// Databases whose turn has not come.
    waiting: BTreeSet<i32>,
    walk: Option<Walk>,
    /// The data is being loaded in place: every key tells of itself, and all indexes are whole in the end.
    is_loading: bool,
}

struct Walk {
    database: i32,
    stage: Stage,
    sessions: u64,
    started: Instant,
    reported: Instant,
}

enum Stage {
    Seeing(Scan),
    Sweeping,
}

/// Whether there is more to rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Every index is whole.
    Idle,
    /// There is more to do.
    Busy,
}

impl Rebuild {
    /// Nothing to rebuild.
    pub(crate) fn new() -> Self {
        Self::default()
    }

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

    fn walks_over(&self, database: i32) -> bool {
        self.walk
            .as_ref()
            .is_some_and(|walk| walk.database == database)
    }

    /// Lets a database be walked over from its first key.
    fn request(&mut self, database: i32) {
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

    /// Loading in place begins or ends.
    pub(crate) fn set_loading(&mut self, is_loading: bool) {
        self.is_loading = is_loading;
    }

    fn next(&mut self) -> Option<Walk> {
        self.walk.take().or_else(|| {
            let now = Instant::now();
            Some(Walk {
                database: self.waiting.pop_first()?,
                stage: Stage::Seeing(Scan::new()),
                sessions: 0,
                started: now,
                reported: now,
            })
        })
    }
}

impl Module {
    /// Lets every index be rebuilt in the background.
    pub(crate) fn rebuild_all(&mut self, context: &Context, cause: Cause) {
        if !self.indexes.follow_the_setting() {
            self.indexes.begin_anew();
        }
        let selected = context.database();
        let mut databases = 0;
        for database in 0..DATABASES_MAX {
            if !context.select(database) {
                break;
            }
            if context.database_size() > 0 || self.indexes.of(database).is_some() {
                self.indexes.of_mut(database).begin_sweep();
                self.rebuild.request(database);
                databases += 1;
            }
        }
        context.select(selected);
        if databases > 0 {
            let cause = cause.as_str();
            let line = format!("indexes of {databases} databases are rebuilt: {cause}");
            context.log(Level::Notice, &line);
        }
    }

    /// Goes on with the rebuild until the moment given. Leaves another database selected.
    pub(crate) fn rebuild_until(&mut self, context: &Context, until: Instant) -> Progress {
        while Instant::now() < until && !self.rebuild.is_loading {
            let Some(mut walk) = self.rebuild.next() else {
                return Progress::Idle;
            };
            if !context.select(walk.database) {
                continue;
            }
            match walk.step(self, context) {
                Swept::More => self.rebuild.walk = Some(walk),
                Swept::Done => walk.report(context, "is whole"),
            }
        }
        if self.rebuild.is_running() {
            Progress::Busy
        } else {
            Progress::Idle
        }
    }
}

impl Walk {
    fn step(&mut self, module: &mut Module, context: &Context) -> Swept {
        if self.reported.elapsed() >= PROGRESS_EVERY {
            self.reported = Instant::now();
            self.report(context, "is being rebuilt");
        }
        match &mut self.stage {
            Stage::Sweeping => module
                .indexes
                .of_mut(self.database)
                .end_sweep(SWEPT_AT_ONCE),
            Stage::Seeing(scan) => {
                let mut names = Vec::new();
                let state = scan.step(context, |key| {
                    if keyspace::may_be_ours(key) {
                        names.push(OwnedText::new(key));
                    }
                });
                for name in &names {
                    keyspace::refresh(module, context, name.text());
                }
                self.sessions += names.len() as u64;
                if state == ScanState::Done {
                    self.stage = Stage::Sweeping;
                }
                Swept::More
            }
        }
    }

    fn report(&self, context: &Context, how: &str) {
        let line = format!(
            "index of database {} {how}: {} keys in {} ms",
            self.database,
            self.sessions,
            self.started.elapsed().as_millis()
        );
        context.log(Level::Notice, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(databases: &[i32]) -> Rebuild {
        Rebuild {
            waiting: databases.iter().copied().collect(),
            ..Rebuild::default()
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
        let mut rebuild = Rebuild::new();
        rebuild.set_loading(true);
        assert!(!rebuild.is_whole(0));
        rebuild.set_loading(false);
        assert!(rebuild.is_whole(0));
    }
}
