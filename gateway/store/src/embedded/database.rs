//! Transitions on the file: read the row, apply the rules, write what changed.
//!
//! Invariants: what is written was decided on what its transaction read; the column `last_used_at` is exact to [`USE_STEP`],
//! also if the record was not written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mooring_session::Tuning;
use mooring_session::clock::ClockWatch;
use mooring_session::context::{Decision, Liveness, RecordChange};
use mooring_session::index::Departures;
use mooring_session::names::InstanceName;
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use rusqlite::{Transaction, TransactionBehavior};

use super::failure::TransactionError;
use super::file::FileConnection;
use super::known_workers::KnownWorkers;
use super::node::FileNode;
use super::recent_sessions::{FileVersion, RecentSessions};
use super::row;
use super::schema::BUSY_TIMEOUT;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::queues::Queues;
use crate::status::StatusCell;
use crate::transition::{Access, SettledScope, Transition, movable_binding};

/// A use that does not change its record is written beside it if the last written one is at least this old, so that the
/// session cap evicts the least recently used session.
const USE_STEP: Millis = Millis::new(1_000);
/// A busy thread purges once per this many writing commands.
const PURGE_EVERY: u32 = 256;

/// The database. Only its thread may wait for SQLite's locks.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) connection: FileConnection,
    /// The path of the file, also while this works in memory.
    pub(super) path: PathBuf,
    pub(super) status: Arc<StatusCell>,
    pub(super) known_workers: KnownWorkers,
    pub(super) recent_sessions: RecentSessions,
    pub(super) clock: Clock,
    pub(super) clock_watch: ClockWatch,
    pub(super) queues: Arc<Queues>,
    departures: Departures,
    tuning: Tuning,
    pub(super) written_since_purge: u32,
    /// Position in each family's index at which the next REAP continues; none for the start.
    pub(super) reaped_to: HashMap<Family, (i64, i64)>,
}

/// The result of a read without the thread.
pub(super) struct NowRead<R> {
    pub(super) reply: Result<R, StoreError>,
    /// The time of use to write beside the record.
    pub(super) used_at: Option<Timestamp>,
}

/// The result of a completed transition.
struct TransitionResult<R, A> {
    reply: R,
    /// The result of the additional work.
    also: A,
    /// Whether it rebound the binding that it may rebind.
    is_moved: bool,
    /// The time of use to write beside the record.
    used_at: Option<Timestamp>,
}

impl<R, A> TransitionResult<R, A> {
    /// Of one that changed nothing. A use is written beside the record if the last one was written some time ago.
    fn unwritten<T: Transition>(
        reply: R,
        also: A,
        last_used_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let is_due = |last_used_at: Timestamp| T::IS_USE && now >= last_used_at.plus(USE_STEP);
        Self {
            reply,
            also,
            is_moved: false,
            used_at: last_used_at.is_some_and(is_due).then_some(now),
        }
    }
}

impl Database {
    pub(super) fn new(
        connection: FileConnection,
        path: &Path,
        clock: Clock,
        queues: Arc<Queues>,
        status: Arc<StatusCell>,
    ) -> Self {
        Self {
            known_workers: KnownWorkers::new(connection.memory_use(), &clock),
            connection,
            path: path.to_owned(),
            status,
            recent_sessions: RecentSessions::default(),
            clock,
            clock_watch: ClockWatch::default(),
            queues,
            departures: Departures::default(),
            tuning: Tuning::default(),
            written_since_purge: 0,
            reaped_to: HashMap::new(),
        }
    }

    pub(super) fn transition<T: Transition>(
        &mut self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        let (reply, ()) = self.transition_and(key, request, |_| Ok(()))?;
        Ok(reply)
    }

    /// Runs a transition and additional work, both or neither: the transaction is committed only if `also` succeeds.
    pub(super) fn transition_and<T: Transition, A>(
        &mut self,
        key: &SessionKey,
        request: &T,
        also: impl Fn(&dyn Liveness) -> Result<A, Refusal>,
    ) -> Result<(T::Reply, A), StoreError> {
        let done = self.with_repair(|database| database.done(key, request, &also))?;
        if let Some(used_at) = done.used_at {
            self.note_use(key, used_at);
        }
        self.notify(key, request, &done);
        Ok((done.reply, done.also))
    }

    /// The same for a transition that only reads. It waits for no lock; none if it has to write, if the file was
    /// replaced, or if reading failed. Then nothing was done.
    pub(super) fn read_now<T: Transition, A>(
        &mut self,
        key: &SessionKey,
        request: &T,
        also: impl Fn(&dyn Liveness) -> Result<A, Refusal>,
    ) -> Option<NowRead<(T::Reply, A)>> {
        if !self.connection.is_in_place() || self.connection.busy_timeout(Duration::ZERO).is_err() {
            return None;
        }
        let read = self.read(key, request, &also);
        // Only fails for a closed connection.
        drop(self.connection.busy_timeout(BUSY_TIMEOUT));
        match read {
            Ok(Some(done)) => {
                self.notify(key, request, &done);
                Some(NowRead {
                    reply: Ok((done.reply, done.also)),
                    used_at: done.used_at,
                })
            }
            Ok(None) | Err(TransactionError::Sqlite(_)) => None,
            Err(TransactionError::Store(error)) => Some(NowRead {
                reply: Err(error),
                used_at: None,
            }),
        }
    }

    /// Tells those who wait for what the transition has settled.
    fn notify<T: Transition, A>(
        &self,
        key: &SessionKey,
        request: &T,
        done: &TransitionResult<T::Reply, A>,
    ) {
        let settles = match request.moved_server().filter(|_| done.is_moved) {
            Some(server) => SettledScope::Server(server),
            None => request.settled_scope(&done.reply),
        };
        (self.queues).note(key, request.claim_waiter(&done.reply), settles);
    }

    fn done<T: Transition, A>(
        &mut self,
        key: &SessionKey,
        request: &T,
        also: &impl Fn(&dyn Liveness) -> Result<A, Refusal>,
    ) -> Result<TransitionResult<T::Reply, A>, TransactionError> {
        if T::ACCESS == Access::Reads
            && let Some(done) = self.read(key, request, also)?
        {
            return Ok(done);
        }
        let done = self.write_transition(key, request, also)?;
        self.written_since_purge += 1;
        if self.written_since_purge >= PURGE_EVERY {
            self.purge();
        }
        Ok(done)
    }

    /// A transition that changes nothing; `None` if it has to write. It needs no transaction: it decides on one record.
    fn read<T: Transition, A>(
        &mut self,
        key: &SessionKey,
        request: &T,
        also: &impl Fn(&dyn Liveness) -> Result<A, Refusal>,
    ) -> Result<Option<TransitionResult<T::Reply, A>>, TransactionError> {
        let data_version = self.known_workers.refresh(&self.connection, &self.clock)?;
        let (now, mono) = (self.clock.now(), self.clock.mono());
        let version = FileVersion {
            data_version,
            rows_changed: self.connection.total_changes(),
        };
        let mut session = (self.recent_sessions).read(&self.connection, version, key, now)?;
        let last_used_at = session.as_ref().map(|session| session.last_used_at);
        let mut slot = (session.as_mut()).and_then(|session| session.record.take());
        let times = (now, mono);
        let node = FileNode::new(&self.connection, key, times, &self.departures, &self.queues);
        let workers = self.known_workers.workers.at(mono);
        // The floor is for the numbers of a new record, which is written.
        let decided = node.decide(request, &mut slot, 0, &self.tuning, &workers);
        let is_unchanged = match &decided {
            Ok(decision) => decision.written == RecordChange::Nothing,
            // A refusal leaves the record as it was.
            Err(TransactionError::Store(_)) => true,
            Err(TransactionError::Sqlite(_)) => false,
        };
        if let Some(session) = session.filter(|_| is_unchanged) {
            session.record = slot;
        }
        let Decision { reply, written } = decided?;
        if written != RecordChange::Nothing {
            return Ok(None);
        }
        let also = also(&workers)?;
        let done = TransitionResult::unwritten::<T>(reply, also, last_used_at, now);
        Ok(Some(done))
    }

    fn write_transition<T: Transition, A>(
        &mut self,
        key: &SessionKey,
        request: &T,
        also: &impl Fn(&dyn Liveness) -> Result<A, Refusal>,
    ) -> Result<TransitionResult<T::Reply, A>, TransactionError> {
        let transaction =
            (self.connection).transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.known_workers.refresh(&transaction, &self.clock)?;
        let (now, mono) = (self.clock.now(), self.clock.mono());
        let stored = row::load(&transaction, key.secret())?;
        let living = stored.as_ref().filter(|row| row.tombstone_ends_at > now);
        let mut slot = living.map(|row| row::decode(&row.fields)).transpose()?;
        let floor = match (&slot, &stored) {
            (Some(_), _) => 0,
            (None, ended) => {
                let highest = ended.as_ref().map_or(0, |row| row.highest_number);
                row::read_floor(&transaction)?.max(highest)
            }
        };
        let before = movable_binding(request, slot.as_ref());
        let times = (now, mono);
        let node = FileNode::new(&transaction, key, times, &self.departures, &self.queues);
        let workers = self.known_workers.workers.at(mono);
        let Decision { reply, written } =
            node.decide(request, &mut slot, floor, &self.tuning, &workers)?;
        if written == RecordChange::Nothing {
            let (also, last_used_at) = (also(&workers)?, living.map(|row| row.last_used_at));
            let done = TransitionResult::unwritten::<T>(reply, also, last_used_at, now);
            return Ok(done);
        }
        let fields = living.map(|row| &row.fields);
        let key = key.secret();
        match &slot {
            Some(record) => {
                let used_at = match (T::IS_USE, living) {
                    (true, _) | (_, None) => now,
                    (false, Some(row)) => row.last_used_at,
                };
                let used_at = used_at.max(record.lifetime.last_used_at);
                let times = row::Times {
                    used_at,
                    tuning: &self.tuning,
                };
                row::save(&transaction, key, fields, record, written, &times)?;
            }
            None => row::remove(
                &transaction,
                key,
                stored.map_or(0, |row| row.highest_number),
            )?,
        }
        let also = also(&workers)?;
        transaction.commit()?;
        let after = movable_binding(request, slot.as_ref());
        Ok(TransitionResult {
            reply,
            also,
            is_moved: self.note_move(request, before, after, mono),
            used_at: None,
        })
    }

    /// Notes the instance that a binding was moved away from. Returns whether it has another epoch.
    fn note_move<T: Transition>(
        &mut self,
        request: &T,
        before: Option<(u64, InstanceName)>,
        after: Option<(u64, InstanceName)>,
        mono: Monotonic,
    ) -> bool {
        let (Some(server), Some((epoch, instance))) = (request.moved_server(), before) else {
            return false;
        };
        if after.as_ref().is_some_and(|(now, _)| *now == epoch) {
            return false;
        }
        if after.is_none_or(|(_, now)| now != instance) {
            self.departures.note(server, &instance, mono);
        }
        true
    }

    /// Runs work in a writing transaction, with the current workers.
    pub(super) fn write<R>(
        &mut self,
        work: impl Fn(&Transaction<'_>, &mut KnownWorkers, &Clock) -> Result<R, TransactionError>,
    ) -> Result<R, StoreError> {
        self.with_repair(|database| {
            let Self {
                connection,
                known_workers,
                clock,
                ..
            } = database;
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            known_workers.refresh(&transaction, clock)?;
            let result = work(&transaction, known_workers, clock)?;
            transaction.commit()?;
            Ok(result)
        })
    }
}
