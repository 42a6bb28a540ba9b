//! What the module holds in memory between commands. All of it may be lost at any moment without harm to a session.

use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;

use mooring_session::clock::{ClockWatch, NodeClock};
use mooring_session::index::Departures;
use mooring_session::news::News;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::Turns;
use mooring_session::workers::Workers;

use crate::failure::Failure;
use crate::ffi::Context;
use crate::field_names::FieldNames;
use crate::figures::Figures;
use crate::housekeeping::Housekeeping;
use crate::indexes::Indexes;
use crate::rebuild::{Cause, Rebuild};
use crate::settings;
use crate::waiting::Waiting;

/// The module's state.
pub(crate) struct Module {
    /// This node's own clock.
    pub(crate) time: NodeTime,
    /// Who is alive.
    pub(crate) workers: Workers,
    /// Names of hash fields, ready to be handed to Redis.
    pub(crate) fields: FieldNames,
    /// What is counted.
    pub(crate) figures: Figures,
    /// The number that a new record's numbers must exceed: see [`mooring_session::Context::floor`].
    pub(crate) floor: u64,
    /// What the records say, by database.
    pub(crate) indexes: Indexes,
    /// Where sessions were just moved away from.
    pub(crate) departures: Departures,
    /// Which of the indexes are whole, and the walk that makes them so.
    pub(crate) rebuild: Rebuild,
    /// Whose turn it is.
    pub(crate) turns: Turns,
    /// What workers wait to hear.
    pub(crate) news: News,
    /// Whether the wall clock can be believed.
    pub(crate) clock: ClockWatch,
    /// Workers that wait for news.
    pub(crate) waiting: Waiting,
    /// When this node looks after itself.
    pub(crate) housekeeping: Housekeeping,
}

/// There while the module is loaded.
static MODULE: Mutex<Option<Module>> = Mutex::new(None);

/// Why the module's state cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
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
            figures: Figures::default(),
            floor: 0,
            indexes: Indexes::new(),
            departures: Departures::default(),
            rebuild: Rebuild::new(),
            turns: Turns::new(started, settings::turn_lease_max()),
            news: News::new(),
            clock: ClockWatch::default(),
            waiting: Waiting::default(),
            housekeeping: Housekeeping::default(),
        };
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = Some(module);
    }

    /// Takes up the data that is there already.
    pub(crate) fn begin(context: &Context) {
        let _ = Self::try_with(|module| module.rebuild_all(context, Cause::Loaded));
    }

    /// Gives everything back to the server.
    pub(crate) fn remove() {
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs a step over the state, unless it is at work already: the server runs one command or callback at a time, but
    /// what a command does may call back in, as opening a key does whose time has come.
    pub(crate) fn try_with<T>(step: impl FnOnce(&mut Self) -> T) -> Result<T, Away> {
        let mut state = match MODULE.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Away::Busy),
        };
        state.as_mut().map(step).ok_or(Away::Unloaded)
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

    /// Whether every index holds all that is in its database.
    pub(crate) fn are_all_whole(&self) -> bool {
        self.indexes.follow_the_setting() && self.rebuild.has_nothing_to_do()
    }

    /// Whether the index of a database holds all that is in it.
    pub(crate) fn is_whole(&self, database: i32) -> bool {
        self.indexes.follow_the_setting() && self.rebuild.is_whole(database)
    }

    /// Raises the floor over the numbers that a key may have had which is gone since `now`.
    pub(crate) fn forget_numbers(&mut self, now: Timestamp) {
        self.floor = self.floor.max(now.unix_ms());
    }

    /// The sessions of a database, or of all, are others now: who waits for their turns, or for a claim, is told to ask
    /// again.
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

/// The clock of this node: see [`NodeClock`].
pub(crate) struct NodeTime {
    /// When the module was loaded.
    started: Instant,
    clock: NodeClock,
}

impl NodeTime {
    fn start() -> Self {
        Self {
            started: Instant::now(),
            clock: NodeClock::default(),
        }
    }

    /// What liveness, leases and time-outs go by.
    pub(crate) fn now(&self) -> Monotonic {
        self.clock.read(self.real())
    }

    /// The system's monotonic clock, to compare the wall clock with.
    pub(crate) fn real(&self) -> Monotonic {
        let elapsed_ms = self.started.elapsed().as_millis();
        Monotonic::from_ms(u64::try_from(elapsed_ms).unwrap_or(u64::MAX))
    }
}
