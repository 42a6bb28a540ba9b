//! A store in plain memory: what tests compare the other stores with, at any clock.
//!
//! The rules run under one lock, so every command is atomic; nothing waits while it is held.

mod listing;
mod look;
mod session_index;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::rules::RateRequest;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::workers::{Beat, Workers};

use self::session_index::{MemoryNode, SessionIndex};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::events::WorkerEvent;
use crate::fleet::{WORKER_GRACE, WorkerView};
use crate::inits::Inits;
use crate::key::{InitDigest, SessionKey};
use crate::queues::Queues;
use crate::rate::{RateReply, Rates};
use crate::sessions::{SESSIONS_MAX, Sessions};
use crate::status::AnsweredBy;
use crate::turns::{self, EnterReply, EnterRequest, LeaveRequest};
use crate::waking::{BindingChange, PriorBinding, SettledScope, WakingTransition};

/// Most deadlines that one command processes, for commands about many sessions.
const ADVANCED_MAX: usize = 1_000;

/// Sessions, workers and initialize params in memory.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    state: Mutex<State>,
    queues: Queues,
    clock: Clock,
    prefix: Box<str>,
}

#[derive(Debug)]
struct State {
    sessions: Sessions,
    session_index: SessionIndex,
    workers: Workers,
    inits: Inits,
    rates: Rates,
    sealed: HashMap<String, Vec<u8>>,
}

impl MemoryStore {
    pub(crate) fn new(clock: Clock, prefix: &str) -> Self {
        Self {
            state: Mutex::new(State {
                sessions: Sessions::new(SESSIONS_MAX),
                session_index: SessionIndex::new(prefix),
                workers: Workers::new(clock.mono(), WORKER_GRACE),
                inits: Inits::default(),
                rates: Rates::default(),
                sealed: HashMap::new(),
            }),
            queues: Queues::new(clock.clone(), prefix),
            clock,
            prefix: prefix.into(),
        }
    }

    pub(crate) async fn run<T: WakingTransition>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        let moment = self.moment();
        let (reply, moved) = self.state().run(key, request, moment, &self.queues)?;
        let settles = match &moved {
            Some(before) => SettledScope::Server(&before.server),
            None => request.settled_scope(&reply),
        };
        self.queues.note(key, request.claim_waiter(&reply), settles);
        Ok(reply)
    }

    pub(crate) async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        let (now, mono) = self.moment();
        let route = request.route();
        let mut state = self.state();
        // A turn that is refused leaves the session as it was, so what ROUTE refuses is refused before.
        let workers = state.workers.at(mono);
        state.sessions.check(key, &route, now, &workers)?;
        let (turn, holder) = self.queues.enter(key, request, &workers)?;
        let (routed, _) = state.run(key, &route, (now, mono), &self.queues)?;
        drop(state);
        self.queues
            .note(key, route.claim_waiter(&routed), SettledScope::Nothing);
        Ok(EnterReply {
            routed,
            turn,
            holder,
            answered_by: AnsweredBy::Store,
        })
    }

    pub(crate) async fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let state = self.state();
        let session_state = state.sessions.state(key, &request.principal, now)?;
        let workers = state.workers.at(self.clock.mono());
        Ok(turns::left(
            self.queues.leave(key, request, &workers),
            session_state,
        )?)
    }

    pub(crate) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        let (now, mono) = self.moment();
        Ok(self.state().workers.beat(beat.clone(), mono, now)?)
    }

    pub(crate) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        let mono = self.clock.mono();
        Ok(self.state().workers.gone(worker, mono))
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        let (now, mono) = self.moment();
        let State {
            workers,
            session_index,
            ..
        } = &mut *self.state();
        let index = session_index.index();
        index.advance(now, ADVANCED_MAX);
        let view = |view: mooring_session::workers::WorkerView| {
            let bindings = index.driven_by(&view.worker);
            WorkerView::of(view, Some(bindings))
        };
        Ok(workers.list(mono).into_iter().map(view).collect())
    }

    pub(crate) async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        let step = || {
            let state = self.state();
            self.queues.advance(&state.workers.at(self.clock.mono()));
            std::future::ready(())
        };
        Ok(self.queues.wait(worker, timeout, step).await)
    }

    pub(crate) async fn rate(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        let now = self.clock.now();
        Ok(self.state().rates.rate(name, request, now))
    }

    pub(crate) async fn put_init(
        &self,
        digest: &InitDigest,
        json: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let lapses_at = self.clock.now().plus(keep);
        self.state().inits.put(digest, json, lapses_at);
        Ok(())
    }

    pub(crate) async fn get_init(&self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        let now = self.clock.now();
        Ok(self.state().inits.get(digest, now).map(str::to_owned))
    }

    pub(crate) async fn delete_init(&self, digest: &InitDigest) -> Result<(), StoreError> {
        self.state().inits.delete(digest);
        Ok(())
    }

    pub(crate) async fn get_sealed(
        &self,
        names: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let state = self.state();
        let found = names.iter().map(|name| state.sealed.get(name).cloned());
        Ok(found.collect())
    }

    pub(crate) async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.state().sealed.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    pub(crate) async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        let mut state = self.state();
        let deleted = names
            .iter()
            .filter(|name| state.sealed.remove(*name).is_some());
        Ok(deleted.count() > 0)
    }

    fn moment(&self) -> (Timestamp, Monotonic) {
        (self.clock.now(), self.clock.mono())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Carries out one transition. Answers with the binding that it moved, as it was, where it moved one.
    fn run<T: WakingTransition>(
        &mut self,
        key: &SessionKey,
        request: &T,
        (now, mono): (Timestamp, Monotonic),
        queues: &Queues,
    ) -> Result<(T::Reply, Option<PriorBinding>), Refusal> {
        let Self {
            sessions,
            session_index,
            workers,
            ..
        } = self;
        for dropped in sessions.make_room(now) {
            session_index.forget(&dropped);
        }
        // The expired sessions are not needed, but counts must be as of now.
        session_index.index().advance(now, ADVANCED_MAX);
        let before = PriorBinding::of(request, sessions.record(key));
        let node = MemoryNode {
            session_index,
            queues,
            key,
            now,
            mono,
        };
        let decided = sessions.run(key, request, now, &workers.at(mono), &node)?;
        let record = sessions.record(key);
        session_index.note(key, record, decided.written, now);
        if T::IS_USE {
            session_index.note_use(key, now);
        }
        let moved = before.as_ref().map(|before| before.moved(record));
        if let (Some(before), Some(BindingChange::Away)) = (&before, moved) {
            session_index.note_departure(&before.server, &before.instance, mono);
        }
        let moved = before.filter(|_| moved != Some(BindingChange::Not));
        Ok((decided.reply, moved))
    }

    /// Drops those of these sessions whose tombstones have ended, and answers with the others.
    fn living(&mut self, keys: Vec<SessionKey>, now: Timestamp) -> Vec<SessionKey> {
        let (living, over): (Vec<_>, Vec<_>) = keys
            .into_iter()
            .partition(|key| self.sessions.living(key, now).is_some());
        for key in over {
            self.sessions.forget(&key);
            self.session_index.forget(&key);
        }
        living
    }
}
