//! What the module holds in memory between commands. All of it may be lost at any moment without harm to a session.

use std::cell::OnceCell;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;

use mooring_session::names::WorkerId;
use mooring_session::time::{Monotonic, Timestamp};
use mooring_session::workers::{Workers, WorkersAt};
use mooring_session::{Liveness, NoIndex, Tuning};

use crate::failure::Failure;
use crate::field_names::FieldNames;
use crate::figures::Figures;
use crate::settings;

/// The module's state.
pub(crate) struct Module {
    /// When it was loaded: the origin of this node's monotonic clock.
    pub(crate) started: Instant,
    /// Who is alive.
    pub(crate) workers: Workers,
    /// Names of hash fields, ready to be handed to Redis.
    pub(crate) fields: FieldNames,
    /// What is counted.
    pub(crate) figures: Figures,
}

/// There while the module is loaded.
static MODULE: Mutex<Option<Module>> = Mutex::new(None);

impl Module {
    /// Begins with nothing known.
    pub(crate) fn install() {
        let module = Self {
            started: Instant::now(),
            workers: Workers::new(Monotonic::default(), settings::worker_grace()),
            fields: FieldNames::new(),
            figures: Figures::default(),
        };
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = Some(module);
    }

    /// Gives everything back to the server.
    pub(crate) fn remove() {
        *MODULE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs a step over the state. Redis runs one command at a time, so the lock is free; should a callback ever
    /// come while it is held, that is a defect and becomes an error instead of a dead lock.
    pub(crate) fn with<T>(
        step: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut state = match MODULE.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Failure::Internal),
        };
        step(state.as_mut().ok_or(Failure::Internal)?)
    }

    /// This node's monotonic clock: milliseconds since the module was loaded.
    pub(crate) fn monotonic(&self) -> Monotonic {
        monotonic(self.started)
    }

    /// Starts the grace of workers again, as after a start: this node was a replica, to which nobody beats.
    pub(crate) fn forget_workers(&mut self) {
        self.workers = Workers::new(self.monotonic(), settings::worker_grace());
    }
}

/// What a rule is told besides the record and the request.
pub(crate) struct Surroundings<'a> {
    now: Timestamp,
    tuning: Tuning,
    workers: WorkersNow<'a>,
}

/// Everybody's liveness at the moment of the command. Most commands never ask, so the monotonic clock is read by the
/// first question.
struct WorkersNow<'a> {
    workers: &'a Workers,
    started: Instant,
    known: OnceCell<WorkersAt<'a>>,
}

impl<'a> WorkersNow<'a> {
    fn known(&self) -> &WorkersAt<'a> {
        self.known
            .get_or_init(|| self.workers.at(monotonic(self.started)))
    }
}

impl Liveness for WorkersNow<'_> {
    fn is_alive(&self, worker: &WorkerId) -> bool {
        self.known().is_alive(worker)
    }

    fn is_draining(&self, worker: &WorkerId) -> bool {
        self.known().is_draining(worker)
    }

    fn address(&self, worker: &WorkerId) -> Option<&str> {
        self.known().address(worker)
    }
}

impl<'a> Surroundings<'a> {
    /// The moment `now_unix_ms`, read once per command.
    pub(crate) fn at(module: &'a Module, now_unix_ms: u64) -> Self {
        Self::of(&module.workers, module.started, now_unix_ms)
    }

    /// The same from the parts of a [`Module`] that a command has borrowed.
    pub(crate) fn of(workers: &'a Workers, started: Instant, now_unix_ms: u64) -> Self {
        Self {
            now: Timestamp::from_unix_ms(now_unix_ms),
            tuning: settings::tuning(),
            workers: WorkersNow {
                workers,
                started,
                known: OnceCell::new(),
            },
        }
    }

    /// The rules' own form of it.
    pub(crate) fn context(&self) -> mooring_session::Context<'_> {
        mooring_session::Context {
            now: self.now,
            // Nothing is forgotten before its time yet, so nothing can be created anew within a millisecond.
            floor: 0,
            tuning: &self.tuning,
            workers: &self.workers,
            node: &NoIndex,
        }
    }
}

fn monotonic(started: Instant) -> Monotonic {
    let elapsed_ms = started.elapsed().as_millis();
    Monotonic::from_ms(u64::try_from(elapsed_ms).unwrap_or(u64::MAX))
}
