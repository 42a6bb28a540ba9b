//! The store of one process's memory: for tests, and for a gateway that need not survive itself.
//!
//! The rules run under one lock, so every command is atomic; nothing waits while it is held.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Workers};

use super::clock::Clock;
use super::inits::Inits;
use super::key::{InitDigest, SessionKey};
use super::sessions::{SESSIONS_MAX, Sessions};
use super::transition::Transition;

/// How long a worker that was never heard counts as alive: the module's default.
pub(super) const WORKER_GRACE: Millis = Millis::new(15_000);

/// Sessions, workers and initialize params in memory.
#[derive(Debug)]
pub(super) struct MemoryStore {
    state: Mutex<State>,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    sessions: Sessions,
    workers: Workers,
    inits: Inits,
}

impl MemoryStore {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            state: Mutex::new(State {
                sessions: Sessions::new(SESSIONS_MAX),
                workers: Workers::new(clock.mono(), WORKER_GRACE),
                inits: Inits::default(),
            }),
            clock,
        }
    }

    pub(super) fn run<T: Transition>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, Refusal> {
        let State {
            sessions, workers, ..
        } = &mut *self.state();
        sessions.run(
            key,
            request,
            self.clock.now(),
            &workers.at(self.clock.mono()),
        )
    }

    pub(super) fn beat(&self, beat: Beat) -> Result<(), Refusal> {
        let (mono, now) = (self.clock.mono(), self.clock.now());
        self.state().workers.beat(beat, mono, now)
    }

    pub(super) fn gone(&self, worker: &WorkerId) -> bool {
        let mono = self.clock.mono();
        self.state().workers.gone(worker, mono)
    }

    pub(super) fn put_init(&self, digest: &InitDigest, json: &str, keep: Millis) {
        let lapses_at = self.clock.now().plus(keep);
        self.state().inits.put(digest, json, lapses_at);
    }

    pub(super) fn get_init(&self, digest: &InitDigest) -> Option<String> {
        let now = self.clock.now();
        self.state().inits.get(digest, now).map(str::to_owned)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
