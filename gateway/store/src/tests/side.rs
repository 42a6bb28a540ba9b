//! One store under test, which carries out operations and tells all that it was told.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mooring_session::names::{Principal, WorkerId};
use mooring_session::rules::ForgetRequest;
use mooring_session::time::Millis;
use mooring_session::workers::Drain;

use super::operations::{Kind, Operation};
use crate::test_support::requests as make;
use crate::{Family, SessionKey, SessionPage, Store, StoreError, WorkerEvent, WorkerView};

/// The workers that operations name: two boots of one name, and another name.
const WORKER_NAMES: [&str; 3] = ["w:1", "w:2", "v:1"];
/// How many sessions the operations name.
const SESSIONS: u8 = 3;

/// A store under test, and the numbers it gave: a caller passes on what it was told.
pub(crate) struct Side<'a> {
    pub(crate) store: &'a Store,
    /// What keeps one run apart from others in the same store.
    pub(crate) run: u64,
    epochs: BTreeMap<(u8, u8), u64>,
    generations: BTreeMap<u8, u64>,
    turns: BTreeMap<(u8, u8), u64>,
    deaths: Option<WorkerDeaths>,
}

/// Which workers have died, so that none of them comes back.
#[derive(Default)]
struct WorkerDeaths {
    has_beaten: BTreeSet<WorkerId>,
    dead: BTreeSet<WorkerId>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(store: &'a Store, run: u64) -> Self {
        Self {
            store,
            run,
            epochs: BTreeMap::new(),
            generations: BTreeMap::new(),
            turns: BTreeMap::new(),
            deaths: None,
        }
    }

    /// No worker that died comes back. What the dead were told and the turns that they held are dropped when a store sees the
    /// death, which is for each store to say: Redis looks at its ticks, so a return may come before that or after it.
    pub(super) fn without_returns(mut self) -> Self {
        self.deaths = Some(WorkerDeaths::default());
        self
    }

    /// Carries it out, and answers with everything that was answered, as text.
    pub(crate) async fn apply(&mut self, op: &Operation) -> String {
        let key = make::key(&self.session(op.session));
        let store = self.store;
        match op.kind {
            Kind::Create => {
                let reply = store.create(&key, &self.create(op)).await;
                let generation = reply.as_ref().ok().map(|reply| reply.record.generation);
                self.note_generation(op, generation);
                reply_text(&reply)
            }
            Kind::Touch => reply_text(&store.touch(&key, &self.touch(op)).await),
            Kind::Get => reply_text(&store.get(&key).await),
            Kind::End => {
                let reply = store.end(&key, &self.end(op)).await;
                self.note_generation(op, reply.as_ref().ok().map(|it| it.record.generation));
                reply_text(&reply)
            }
            Kind::Route => reply_text(&store.route(&key, &self.route(op)).await),
            Kind::Bind => {
                let reply = store.bind(&key, &self.bind(op)).await;
                self.note_epoch(op, reply.as_ref().ok().map(|bound| bound.binding.epoch));
                reply_text(&reply)
            }
            Kind::Confirm => reply_text(&store.confirm(&key, &self.confirm(op)).await),
            Kind::Rebind => {
                let reply = store.rebind(&key, &self.rebind(op)).await;
                self.note_epoch(op, reply.as_ref().ok().map(|moved| moved.binding.epoch));
                reply_text(&reply)
            }
            Kind::Unbind => reply_text(&store.unbind(&key, &self.unbind(op)).await),
            Kind::Claim => reply_text(&store.claim(&key, &self.clean(op)).await),
            Kind::Forget => reply_text(&store.forget(&key, &self.forget(op)).await),
            _ => self.apply_to_many(op, &key).await,
        }
    }

    /// The operations that are about more than one record.
    async fn apply_to_many(&mut self, op: &Operation, key: &SessionKey) -> String {
        let store = self.store;
        let worker = make::worker(&self.worker(op));
        match op.kind {
            Kind::Enter => {
                let reply = store.enter(key, &self.enter(op)).await;
                if let Some(turn) = reply.as_ref().ok().and_then(|entered| entered.turn) {
                    self.turns.insert((op.session, op.token), turn);
                }
                reply_text(&reply)
            }
            Kind::Leave => reply_text(&store.leave(key, &self.leave(op)).await),
            Kind::Withdraw => reply_text(&store.leave(key, &self.withdraw(op)).await),
            // When what the dead were told is dropped is for each store to say.
            Kind::News if self.is_dead(&worker).await => String::new(),
            Kind::News => {
                let events = store
                    .wait_for_events(&worker, Duration::from_millis(1))
                    .await;
                reply_text(&events.map(sorted_events))
            }
            Kind::List => reply_text(&store.list(&self.query(op)).await.map(sorted_page)),
            Kind::Reap => {
                let keys = store.reap(&worker, Family::Mcp, 1_000).await;
                reply_text(&keys.map(|keys| self.own(keys)))
            }
            Kind::Rate => {
                let name = format!("r{}-{}", self.run, op.session);
                let window = Millis::new(60_000);
                let rated = store.rate(&name, 3, window, u64::from(op.server) + 1).await;
                reply_text(&rated.map(|rated| (rated.allowed, rated.remaining)))
            }
            Kind::Beat if self.would_return(&worker) => String::new(),
            Kind::Beat => {
                let mut beat = make::beat(&self.worker(op), 600_000);
                if op.flags & 7 == 0 {
                    beat.drain = Drain::Draining;
                }
                let reply = store.beat(&beat).await;
                if reply.is_ok() {
                    self.note_beat(op);
                }
                reply_text(&reply)
            }
            Kind::Gone => {
                if let Some(deaths) = &mut self.deaths {
                    deaths.dead.insert(worker.clone());
                }
                reply_text(&store.gone(&worker).await)
            }
            Kind::Workers => reply_text(
                &store
                    .workers()
                    .await
                    .map(|workers| self.own_workers(workers)),
            ),
            _ => String::new(),
        }
    }

    async fn is_dead(&self, worker: &WorkerId) -> bool {
        let heard = self.store.workers().await.unwrap();
        heard.iter().any(|view| {
            view.worker.name() == worker.name() && (view.worker != *worker || !view.alive)
        })
    }

    fn would_return(&self, worker: &WorkerId) -> bool {
        let deaths = self.deaths.as_ref();
        deaths.is_some_and(|deaths| deaths.dead.contains(worker))
    }

    /// The other boots of the name are dead now. The beat of one that has beaten is refused, and is asked for; one that has
    /// not would return.
    fn note_beat(&mut self, op: &Operation) {
        let worker = make::worker(&self.worker(op));
        let others: Vec<WorkerId> = (self.workers().into_iter())
            .filter(|boot| boot.name() == worker.name() && *boot != worker)
            .collect();
        if let Some(deaths) = &mut self.deaths {
            let strangers = others
                .into_iter()
                .filter(|boot| !deaths.has_beaten.contains(boot));
            deaths.dead.extend(strangers);
            deaths.has_beaten.insert(worker);
        }
    }

    fn note_epoch(&mut self, op: &Operation, epoch: Option<u64>) {
        if let Some(epoch) = epoch {
            self.epochs.insert((op.session, op.server), epoch);
        }
    }

    fn note_generation(&mut self, op: &Operation, generation: Option<u64>) {
        if let Some(generation) = generation {
            self.generations.insert(op.session, generation);
        }
    }

    /// Mostly the epoch last seen; sometimes one that never was.
    pub(super) fn epoch(&self, op: &Operation) -> u64 {
        let known = self.epochs.get(&(op.session, op.server)).copied();
        known.filter(|_| op.flags & 56 != 0).unwrap_or(1)
    }

    /// The turn that this ticket was last told it has, where it says so.
    pub(super) fn held(&self, op: &Operation) -> Option<u64> {
        let known = self.turns.get(&(op.session, op.token)).copied();
        known.filter(|_| op.flags & 48 == 0)
    }

    pub(super) fn session(&self, number: u8) -> String {
        format!("r{}-{number}", self.run)
    }

    pub(super) fn principal(&self, op: &Operation) -> Principal {
        make::principal(&match op.principal {
            0 => format!("zoë{}@example.org", self.run),
            _ => format!("alice{}", self.run),
        })
    }

    pub(super) fn worker(&self, op: &Operation) -> String {
        let worker = WORKER_NAMES.get(usize::from(op.worker)).unwrap();
        format!("r{}-{worker}", self.run)
    }

    /// Every worker of this run.
    pub(super) fn workers(&self) -> Vec<WorkerId> {
        let names = WORKER_NAMES
            .iter()
            .map(|name| format!("r{}-{name}", self.run));
        names.map(|name| make::worker(&name)).collect()
    }

    fn forget(&self, op: &Operation) -> ForgetRequest {
        let known = self.generations.get(&op.session).copied();
        ForgetRequest {
            generation: known.filter(|_| op.flags & 7 != 0).unwrap_or(1),
            worker: make::worker(&self.worker(op)),
        }
    }

    /// The keys of this run; a store may hold what earlier ones left.
    fn own(&self, keys: Vec<SessionKey>) -> Vec<String> {
        let own: Vec<SessionKey> = (0..SESSIONS)
            .map(|number| make::key(&self.session(number)))
            .collect();
        let mut own: Vec<String> = keys
            .into_iter()
            .filter(|key| own.contains(key))
            .map(|key| format!("{key:?}"))
            .collect();
        own.sort();
        own
    }

    fn own_workers(&self, mut workers: Vec<WorkerView>) -> Vec<WorkerView> {
        let own = format!("r{}-", self.run);
        workers.retain(|view| view.worker.as_str().starts_with(&own));
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        workers
    }
}

/// Sessions of one moment may come in any order.
fn sorted_page(page: SessionPage) -> (bool, bool, Vec<String>) {
    let sessions = page.sessions.into_iter();
    let mut sessions: Vec<String> = sessions.map(|session| format!("{session:?}")).collect();
    sessions.sort();
    (page.complete, page.cursor.is_some(), sessions)
}

fn sorted_events(items: Vec<WorkerEvent>) -> Vec<String> {
    let mut items: Vec<String> = items.into_iter().map(|item| format!("{item:?}")).collect();
    items.sort();
    items
}

fn reply_text<R: std::fmt::Debug>(result: &Result<R, StoreError>) -> String {
    format!("{result:?}")
}
