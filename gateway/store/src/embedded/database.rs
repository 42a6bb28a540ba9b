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
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Timestamp};
use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::TransactionError;
use super::file::FileConnection;
use super::housekeeping::USE_STEP;
use super::known_workers::KnownWorkers;
use super::node::FileNode;
use super::recent_sessions::{FileVersion, RecentSessions};
use super::row::{self, stored_number};
use super::schema::BUSY_TIMEOUT;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::key::{Family, InitDigest, SessionKey};
use crate::queues::Queues;
use crate::status::StatusCell;
use crate::transition::Access;
use crate::waking::{BindingChange, PriorBinding, SettledScope, WakingTransition};

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
    /// The binding that it rebound, as it was before.
    moved: Option<PriorBinding>,
    /// The time of use to write beside the record.
    used_at: Option<Timestamp>,
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

    pub(super) fn transition<T: WakingTransition>(
        &mut self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        let (reply, ()) = self.transition_and(key, request, |_| Ok(()))?;
        Ok(reply)
    }

    /// Runs a transition and additional work, both or neither: the transaction is committed only if `also` succeeds.
    pub(super) fn transition_and<T: WakingTransition, A>(
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
    pub(super) fn read_now<T: WakingTransition, A>(
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
    fn notify<T: WakingTransition, A>(
        &self,
        key: &SessionKey,
        request: &T,
        done: &TransitionResult<T::Reply, A>,
    ) {
        let settles = match &done.moved {
            Some(before) => SettledScope::Server(&before.server),
            None => request.settled_scope(&done.reply),
        };
        (self.queues).note(key, request.claim_waiter(&done.reply), settles);
    }

    fn done<T: WakingTransition, A>(
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
    fn read<T: WakingTransition, A>(
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
        let stored = (self.recent_sessions).read(&self.connection, version, key, now)?;
        let (mut slot, last_used_at) = stored
            .map(|session| (session.record, session.last_used_at))
            .unzip();
        let times = (now, mono);
        let node = FileNode::new(&self.connection, key, times, &self.departures, &self.queues);
        let workers = self.known_workers.workers.at(mono);
        // The floor is for the numbers of a new record, which is written.
        let Decision { reply, written } =
            node.decide(request, &mut slot, 0, &self.tuning, &workers)?;
        if written != RecordChange::Nothing {
            return Ok(None);
        }
        let is_due = |last_used_at: Timestamp| T::IS_USE && now >= last_used_at.plus(USE_STEP);
        Ok(Some(TransitionResult {
            reply,
            also: also(&workers)?,
            moved: None,
            used_at: last_used_at.is_some_and(is_due).then_some(now),
        }))
    }

    fn write_transition<T: WakingTransition, A>(
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
        let before = PriorBinding::of(request, slot.as_ref());
        let node = FileNode::new(
            &transaction,
            key,
            (now, mono),
            &self.departures,
            &self.queues,
        );
        let workers = self.known_workers.workers.at(mono);
        let Decision { reply, written } =
            node.decide(request, &mut slot, floor, &self.tuning, &workers)?;
        if written == RecordChange::Nothing {
            let is_due =
                |row: &&row::SessionRow| T::IS_USE && now >= row.last_used_at.plus(USE_STEP);
            return Ok(TransitionResult {
                reply,
                also: also(&workers)?,
                moved: None,
                used_at: living.filter(is_due).map(|_| now),
            });
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
        let moved = before.as_ref().map(|before| before.moved(slot.as_ref()));
        if let (Some(before), Some(BindingChange::Away)) = (&before, moved) {
            let PriorBinding {
                server, instance, ..
            } = before;
            self.departures.note(server, instance, mono);
        }
        let moved = before.filter(|_| moved != Some(BindingChange::Not));
        Ok(TransitionResult {
            reply,
            also,
            moved,
            used_at: None,
        })
    }

    pub(super) fn put_init(
        &mut self,
        digest: &InitDigest,
        json: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        self.write(|transaction, _, clock| {
            transaction
                .prepare_cached(
                    "INSERT INTO inits VALUES (?1, ?2, ?3)
                     ON CONFLICT (digest) DO UPDATE SET lapses_at = excluded.lapses_at",
                )?
                .execute(params![
                    digest.as_str(),
                    json,
                    stored_number(clock.now().plus(keep).unix_ms())
                ])?;
            Ok(())
        })
    }

    pub(super) fn get_init(&mut self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        self.with_repair(|database| {
            let now = stored_number(database.clock.now().unix_ms());
            let found = database
                .connection
                .prepare_cached("SELECT params FROM inits WHERE digest = ?1 AND lapses_at > ?2")?
                .query_row(params![digest.as_str(), now], |row| row.get(0))
                .optional()?;
            Ok(found)
        })
    }

    pub(super) fn delete_init(&mut self, digest: &InitDigest) -> Result<(), StoreError> {
        self.write(|transaction, _, _| {
            transaction
                .prepare_cached("DELETE FROM inits WHERE digest = ?1")?
                .execute(params![digest.as_str()])?;
            Ok(())
        })
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
