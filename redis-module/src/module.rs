//! The module's state in memory between commands. All of it may be lost at any moment without harm to a session.
//!
//! The type of each field is in its own module, which does not depend on [`Module`]. Functions that need all of it are
//! in the modules above this one.

use std::sync::{Mutex, PoisonError, TryLockError};

use mooring_session::SessionPlace;
use mooring_session::clock::ClockWatch;
use mooring_session::events::EventMailboxes;
use mooring_session::index::Departures;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::Turns;
use mooring_session::workers::Workers;

use crate::blocked_clients::BlockedClients;
use crate::counters::Counters;
use crate::event_connections::EventConnections;
use crate::failure::Failure;
use crate::ffi::{Context, Level};
use crate::field_names::FieldNames;
use crate::indexes::Indexes;
use crate::node_time::NodeTime;
use crate::rebuild::{RebuildCause, RebuildState, WalkPurpose};
use crate::settings;
use crate::tick_schedule::TickSchedule;

/// The most databases that are searched. Servers usually have 16.
const DATABASES_MAX: i32 = 65_536;

/// The module's state.
pub(crate) struct Module {
    /// This node's own clock.
    pub(crate) time: NodeTime,
    /// Which workers are alive.
    pub(crate) workers: Workers,
    /// The names of hash fields, as strings of the server.
    pub(crate) fields: FieldNames,
    /// The counters since the module was loaded.
    pub(crate) counters: Counters,
    /// The number that a new record's numbers must exceed: see [`mooring_session::Context::floor`].
    pub(crate) floor: u64,
    /// The indexes, by database.
    pub(crate) indexes: Indexes,
    /// Instances that sessions were just moved away from.
    pub(crate) departures: Departures,
    /// Which indexes are complete, and the walk that completes the others.
    pub(crate) rebuild: RebuildState,
    /// The queues of turns.
    pub(crate) turns: Turns,
    /// The events of workers.
    pub(crate) events: EventMailboxes,
    /// Whether the wall clock can be trusted.
    pub(crate) clock: ClockWatch,
    /// Clients that are blocked in WORKER.WAIT.
    pub(crate) blocked_clients: BlockedClients,
    /// The connections on which workers wait, also between two WORKER.WAIT.
    pub(crate) event_connections: EventConnections,
    /// When the next tick is due.
    pub(crate) tick_schedule: TickSchedule,
}

/// Set while the module is loaded.
static MODULE: Mutex<Option<Module>> = Mutex::new(None);

/// Why the module's state is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateError {
    /// A command or a callback of the module is running, and this is a nested callback.
    Busy,
    /// The module is being loaded or unloaded.
    Unloaded,
}

impl Module {
    /// Installs an empty state.
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
            events: EventMailboxes::new(),
            clock: ClockWatch::default(),
            blocked_clients: BlockedClients::default(),
            event_connections: EventConnections::default(),
            tick_schedule: TickSchedule::default(),
        };
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = Some(module);
    }

    /// Indexes the existing data.
    pub(crate) fn begin(context: &Context) {
        let _ = Self::try_with(|module| module.rebuild_all(context, RebuildCause::Loaded));
    }

    /// Frees the state.
    pub(crate) fn remove() {
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs a step with the state, unless it is locked: the server runs one command or callback at a time, but a
    /// command may cause a nested callback, for example by opening an expired key.
    pub(crate) fn try_with<T>(step: impl FnOnce(&mut Self) -> T) -> Result<T, StateError> {
        let mut state = match MODULE.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StateError::Busy),
        };
        state.as_mut().map(step).ok_or(StateError::Unloaded)
    }

    /// The same for a step that is never nested: if it is, that is a defect and becomes an error instead of a deadlock.
    pub(crate) fn with<T>(
        step: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::try_with(step).unwrap_or(Err(Failure::Internal))
    }

    /// This node's clock: the time since the module was loaded, without that in which the node was stalled.
    pub(crate) fn monotonic(&self) -> Monotonic {
        self.time.now()
    }

    /// Whether every index is complete, and none is being verified.
    pub(crate) fn are_all_verified(&self) -> bool {
        self.indexes.are_prefixes_current() && self.rebuild.has_nothing_to_do()
    }

    /// Whether the index of a database is complete: caps and placement rely on it.
    pub(crate) fn is_whole(&self, database: i32) -> bool {
        self.indexes.are_prefixes_current() && self.rebuild.is_whole(database)
    }

    /// Whether the index is also verified: replies that list sessions report it.
    pub(crate) fn is_verified(&self, database: i32) -> bool {
        self.indexes.are_prefixes_current() && self.rebuild.is_verified(database)
    }

    /// Rebuilds or verifies every index in the background.
    pub(crate) fn rebuild_all(&mut self, context: &Context, cause: RebuildCause) {
        let mut purpose = cause.purpose();
        if !self.indexes.are_prefixes_current() {
            self.indexes.reset();
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

    /// Raises the floor above the numbers of a key that was removed by `now`.
    pub(crate) fn forget_numbers(&mut self, now: Timestamp) {
        self.floor = self.floor.max(now.least_number());
    }

    /// The session ended: notifies the waiters for its turns and claims to ask again.
    pub(crate) fn drop_session(&mut self, session: &SessionPlace) {
        self.turns.drop_session(session);
        self.events.settle_session(session);
    }

    /// The sessions of a database were replaced and may return: notifies their waiters, and starts a quiet time for
    /// their turns.
    pub(crate) fn restart_database(&mut self, database: i32) {
        self.turns.restart_database(database);
        self.events.settle_database(Some(database));
    }

    /// The sessions of a database, or of all, are gone: notifies the waiters for their turns and claims to ask again.
    pub(crate) fn drop_turns(&mut self, database: Option<i32>) {
        self.events.settle_database(database);
        match database {
            Some(database) => self.turns.drop_database(database),
            None => self.turns.restart(self.monotonic(), Millis::default()),
        }
    }

    /// This node became a replica: another node grants the turns and receives the beats.
    pub(crate) fn stop_serving(&mut self) {
        self.drop_turns(None);
        self.workers = Workers::new(self.monotonic(), settings::worker_grace());
    }

    /// This node was a replica, which receives no beats and whose turns are outdated: the grace period and the quiet
    /// time start again.
    pub(crate) fn start_serving(&mut self) {
        let now = self.monotonic();
        self.workers = Workers::new(now, settings::worker_grace());
        self.turns.restart(now, settings::turn_lease_max());
    }
}
