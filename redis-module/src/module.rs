//! What the module holds in memory between commands. All of it may be lost at any moment without harm to a session.
//!
//! The type of each field is in a module of its own that does not know [`Module`]. Functions that need the whole of it
//! are in the modules above this one.

use std::sync::{Mutex, PoisonError, TryLockError};

use mooring_session::SessionPlace;
use mooring_session::clock::ClockWatch;
use mooring_session::index::Departures;
use mooring_session::news::News;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::Turns;
use mooring_session::workers::Workers;

use crate::blocked_clients::BlockedClients;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::ffi::{Context, Level};
use crate::field_names::FieldNames;
use crate::indexes::Indexes;
use crate::node_time::NodeTime;
use crate::rebuild::{RebuildCause, RebuildState, WalkPurpose};
use crate::settings;
use crate::tick_schedule::TickSchedule;

/// Most databases looked at. Servers are run with 16, and with more only by mistake.
const DATABASES_MAX: i32 = 65_536;

/// The module's state.
pub(crate) struct Module {
    /// This node's own clock.
    pub(crate) time: NodeTime,
    /// Who is alive.
    pub(crate) workers: Workers,
    /// Names of hash fields, ready to be handed to Redis.
    pub(crate) fields: FieldNames,
    /// What was counted since the module was loaded.
    pub(crate) counters: Counters,
    /// The number that a new record's numbers must exceed: see [`mooring_session::Context::floor`].
    pub(crate) floor: u64,
    /// What the records say, by database.
    pub(crate) indexes: Indexes,
    /// Where sessions were just moved away from.
    pub(crate) departures: Departures,
    /// Which of the indexes are whole, and the walk that makes them so.
    pub(crate) rebuild: RebuildState,
    /// Whose turn it is.
    pub(crate) turns: Turns,
    /// What workers wait to hear.
    pub(crate) news: News,
    /// Whether the wall clock can be believed.
    pub(crate) clock: ClockWatch,
    /// Clients that are blocked in WORKER.WAIT.
    pub(crate) blocked_clients: BlockedClients,
    /// When the next tick is due.
    pub(crate) tick_schedule: TickSchedule,
}

/// There while the module is loaded.
static MODULE: Mutex<Option<Module>> = Mutex::new(None);

/// Why the module's state is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateError {
    /// A command or a callback of the module is at work, and this is a callback within.
    Busy,
    /// The module is being loaded or unloaded.
    Unloaded,
}

impl Module {
    /// Begins with nothing known.
    pub(crate) fn install() {
        let started = Monotonic::default();
        let module = Self {
            time: NodeTime::start(),
            workers: Workers::new(started, settings::worker_grace()),
            fields: FieldNames::new(),
            counters: Counters::default(),
            floor: 0,
            indexes: Indexes::new(),
            departures: Departures::default(),
            rebuild: RebuildState::default(),
            turns: Turns::new(started, settings::turn_lease_max()),
            news: News::new(),
            clock: ClockWatch::default(),
            blocked_clients: BlockedClients::default(),
            tick_schedule: TickSchedule::default(),
        };
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = Some(module);
    }

    /// Takes up the data that is there already.
    pub(crate) fn begin(context: &Context) {
        let _ = Self::try_with(|module| module.rebuild_all(context, RebuildCause::Loaded));
    }

    /// Gives everything back to the server.
    pub(crate) fn remove() {
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs a step over the state, unless it is at work already: the server runs one command or callback at a time, but
    /// what a command does may call back in, as opening a key does whose time has come.
    pub(crate) fn try_with<T>(step: impl FnOnce(&mut Self) -> T) -> Result<T, StateError> {
        let mut state = match MODULE.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StateError::Busy),
        };
        state.as_mut().map(step).ok_or(StateError::Unloaded)
    }

    /// The same for a step that nothing of the module's own can be around: should it be, that is a defect and becomes
    /// an error instead of a dead lock.
    pub(crate) fn with<T>(
        step: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::try_with(step).unwrap_or(Err(Failure::Internal))
    }

    /// This node's clock: milliseconds since the module was loaded, without those in which the node stood still.
    pub(crate) fn monotonic(&self) -> Monotonic {
        self.time.now()
    }

    /// Whether every index holds all that is in its database, and none is being verified.
    pub(crate) fn are_all_verified(&self) -> bool {
        self.indexes.follow_the_setting() && self.rebuild.has_nothing_to_do()
    }

    /// Whether the index of a database holds all that is in it: caps and placement rely on it.
    pub(crate) fn is_whole(&self, database: i32) -> bool {
        self.indexes.follow_the_setting() && self.rebuild.is_whole(database)
    }

    /// Whether the same is verified: answers that list sessions say so.
    pub(crate) fn is_verified(&self, database: i32) -> bool {
        self.indexes.follow_the_setting() && self.rebuild.is_verified(database)
    }

    /// Lets every index be rebuilt or verified in the background.
    pub(crate) fn rebuild_all(&mut self, context: &Context, cause: RebuildCause) {
        let mut purpose = cause.purpose();
        if !self.indexes.follow_the_setting() {
            self.indexes.begin_anew();
            purpose = WalkPurpose::Fill;
        }
        let selected = context.database();
        let mut databases = 0;
        for database in 0..DATABASES_MAX {
            if !context.select(database) {
                break;
            }
            if context.database_size() > 0 || self.indexes.of(database).is_some() {
                self.indexes.of_mut(database).begin_sweep();
                self.rebuild.request(database, purpose);
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

    /// Raises the floor over the numbers that a key may have had which is gone since `now`.
    pub(crate) fn forget_numbers(&mut self, now: Timestamp) {
        self.floor = self.floor.max(now.least_number());
    }

    /// The session is over: who waits for its turn, or for a claim of it, is told to ask again.
    pub(crate) fn drop_session(&mut self, session: &SessionPlace) {
        self.turns.drop_session(session);
        self.news.settle_session(session);
    }

    /// The sessions of a database are others now, and may come back: the same, and its turns are quiet.
    pub(crate) fn restart_database(&mut self, database: i32) {
        self.turns.restart_database(database);
        self.news.settle_database(Some(database));
    }

    /// The sessions of a database, or of all, are over: who waits for their turns, or for a claim, is told to ask again.
    pub(crate) fn drop_turns(&mut self, database: Option<i32>) {
        self.news.settle_database(database);
        match database {
            Some(database) => self.turns.drop_database(database),
            None => self.turns.restart(self.monotonic(), Millis::default()),
        }
    }

    /// This node is a replica from now on: another one gives the turns and hears the workers.
    pub(crate) fn stop_serving(&mut self) {
        self.drop_turns(None);
        self.workers = Workers::new(self.monotonic(), settings::worker_grace());
    }

    /// This node was a replica, to which nobody beats, and whose turns are not what was given meanwhile: grace and
    /// quiet time begin again.
    pub(crate) fn start_serving(&mut self) {
        let now = self.monotonic();
        self.workers = Workers::new(now, settings::worker_grace());
        self.turns.restart(now, settings::turn_lease_max());
    }
}
