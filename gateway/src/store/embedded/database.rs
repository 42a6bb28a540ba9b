//! Transitions over the file: read the row, let the rules decide, write what they changed.
//!
//! Invariant: what is decided in a transaction is decided over what that transaction read.

use std::collections::BTreeMap;
use std::path::Path;

use mooring_session::codec::{self, CorruptRecord};
use mooring_session::context::{Context, Decided, NoIndex, Tuning, Written};
use mooring_session::names::WorkerId;
use mooring_session::record::Record;
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Timestamp};
use mooring_session::workers::Beat;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::heard::Heard;
use super::{Failed, schema};
use crate::store::clock::Clock;
use crate::store::error::{OpenError, StoreError};
use crate::store::key::{InitDigest, SessionKey};
use crate::store::transition::{Access, Transition};

/// Most ended tombstones dropped in one step, so that no command waits for long behind one.
const PURGE_STEP: u32 = 64;
/// A busy thread takes a purging step after this many commands that wrote.
const PURGE_EVERY: u32 = 256;

/// The database, as its thread holds it.
pub(super) struct Database {
    connection: Connection,
    heard: Heard,
    clock: Clock,
    tuning: Tuning,
    written_since_purge: u32,
}

/// One record's fields by name, as a person reads them with the sqlite3 shell.
type Fields = BTreeMap<String, String>;

/// A row of `sessions`.
struct Stored {
    fields: Fields,
    tombstone_ends_at: Timestamp,
    highest_number: u64,
}

/// What a transition came to.
enum Outcome<R> {
    Done(R),
    /// It has to write, and was tried without the write lock.
    NeedsWriteLock,
}

impl Database {
    pub(super) fn open(path: &Path, clock: Clock) -> Result<Self, OpenError> {
        Ok(Self {
            connection: schema::open(path)?,
            heard: Heard::new(&clock),
            clock,
            tuning: Tuning::default(),
            written_since_purge: 0,
        })
    }

    pub(super) fn transition<T: Transition>(
        &mut self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        if T::ACCESS == Access::Reads
            && let Outcome::Done(reply) =
                self.attempt(key, request, TransactionBehavior::Deferred)?
        {
            return Ok(reply);
        }
        let outcome = self.attempt(key, request, TransactionBehavior::Immediate)?;
        self.written_since_purge += 1;
        if self.written_since_purge >= PURGE_EVERY {
            self.purge();
        }
        match outcome {
            Outcome::Done(reply) => Ok(reply),
            Outcome::NeedsWriteLock => {
                Err(StoreError::NotReady(crate::store::error::NotReady::Locked))
            }
        }
    }

    fn attempt<T: Transition>(
        &mut self,
        key: &SessionKey,
        request: &T,
        behavior: TransactionBehavior,
    ) -> Result<Outcome<T::Reply>, Failed> {
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        self.heard.refresh(&transaction, &self.clock)?;
        let (now, mono) = (self.clock.now(), self.clock.mono());
        let stored = load(&transaction, key)?;
        let living = stored.as_ref().filter(|row| row.tombstone_ends_at > now);
        let mut slot = living.map(|row| decode(&row.fields)).transpose()?;
        let floor = match (&slot, &stored) {
            (Some(_), _) => 0,
            (None, ended) => {
                let highest = ended.as_ref().map_or(0, |row| row.highest_number);
                read_floor(&transaction)?.max(highest)
            }
        };
        let context = Context {
            now,
            floor,
            tuning: &self.tuning,
            workers: &self.heard.workers.at(mono),
            node: &NoIndex,
        };
        let Decided { reply, written } =
            request.decide(&mut slot, key.secret().as_bytes(), &context)?;
        if written == Written::Nothing {
            return Ok(Outcome::Done(reply));
        }
        if matches!(behavior, TransactionBehavior::Deferred) {
            return Ok(Outcome::NeedsWriteLock);
        }
        let before = living.map(|row| &row.fields);
        match &slot {
            Some(record) => save(&transaction, key, before, record, &self.tuning)?,
            None => remove(
                &transaction,
                key,
                stored.map_or(0, |row| row.highest_number),
            )?,
        }
        transaction.commit()?;
        Ok(Outcome::Done(reply))
    }

    pub(super) fn beat(&mut self, beat: Beat) -> Result<(), StoreError> {
        self.write(|transaction, heard, clock| heard.beat(transaction, beat, clock))
    }

    pub(super) fn gone(&mut self, worker: &WorkerId) -> Result<bool, StoreError> {
        self.write(|transaction, heard, clock| Ok(heard.gone(transaction, worker, clock)?))
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
        let found = self
            .connection
            .prepare_cached("SELECT params FROM inits WHERE digest = ?1 AND lapses_at > ?2")
            .and_then(|mut statement| {
                statement
                    .query_row(
                        params![digest.as_str(), stored_number(self.clock.now().unix_ms())],
                        |row| row.get(0),
                    )
                    .optional()
            });
        found.map_err(|error| Failed::Sqlite(error).into())
    }

    /// Drops some tombstones and params whose time is over. What cannot be dropped now is dropped later.
    pub(super) fn purge(&mut self) {
        self.written_since_purge = 0;
        let dropped = self.write(|transaction, _, clock| {
            let now = stored_number(clock.now().unix_ms());
            let (highest, count): (Option<i64>, u32) = transaction.query_row(
                "SELECT max(highest_number), count(*) FROM (SELECT highest_number FROM sessions
                 WHERE tombstone_ends_at <= ?1 ORDER BY tombstone_ends_at, key LIMIT ?2)",
                params![now, PURGE_STEP],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            transaction.execute(
                "DELETE FROM sessions WHERE key IN (SELECT key FROM sessions
                 WHERE tombstone_ends_at <= ?1 ORDER BY tombstone_ends_at, key LIMIT ?2)",
                params![now, PURGE_STEP],
            )?;
            if let Some(highest) = highest {
                raise_floor(transaction, highest)?;
            }
            transaction.execute(
                "DELETE FROM inits WHERE digest IN
                 (SELECT digest FROM inits WHERE lapses_at <= ?1 LIMIT ?2)",
                params![now, PURGE_STEP],
            )?;
            Ok(count)
        });
        match dropped {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "ended tombstones dropped"),
            Err(error) => tracing::warn!(%error, "ended tombstones could not be dropped"),
        }
    }

    fn write<R>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, &mut Heard, &Clock) -> Result<R, Failed>,
    ) -> Result<R, StoreError> {
        let Self {
            connection,
            heard,
            clock,
            ..
        } = self;
        let attempt = || -> Result<R, Failed> {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            heard.refresh(&transaction, clock)?;
            let result = work(&transaction, heard, clock)?;
            transaction.commit()?;
            Ok(result)
        };
        attempt().map_err(StoreError::from)
    }
}

fn load(connection: &Connection, key: &SessionKey) -> Result<Option<Stored>, Failed> {
    let row = connection
        .prepare_cached(
            "SELECT fields, tombstone_ends_at, highest_number FROM sessions WHERE key = ?1",
        )?
        .query_row([key.secret()], |row| {
            Ok((
                row.get::<_, String>(0)?,
                read_number(row, 1)?,
                read_number(row, 2)?,
            ))
        })
        .optional()?;
    let Some((json, ends_at, highest_number)) = row else {
        return Ok(None);
    };
    let fields = serde_json::from_str(&json)
        .map_err(|_| Refusal::Corrupt(CorruptRecord::field(b"fields")))?;
    Ok(Some(Stored {
        fields,
        tombstone_ends_at: Timestamp::from_unix_ms(ends_at),
        highest_number,
    }))
}

fn as_bytes(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields
        .iter()
        .map(|(field, value)| (field.as_bytes(), value.as_bytes()))
}

fn decode(fields: &Fields) -> Result<Record, Refusal> {
    Ok(codec::decode(as_bytes(fields))?)
}

/// Fields that this version does not know are kept.
fn save(
    transaction: &Transaction<'_>,
    key: &SessionKey,
    before: Option<&Fields>,
    record: &Record,
    tuning: &Tuning,
) -> Result<(), Failed> {
    let mut fields = before.cloned().unwrap_or_default();
    let changes = codec::changes(before.into_iter().flat_map(as_bytes), record);
    for field in changes.delete {
        fields.remove(&field);
    }
    fields.extend(changes.set);
    let json = serde_json::to_string(&fields)
        .map_err(|_| Refusal::Corrupt(CorruptRecord::field(b"fields")))?;
    transaction
        .prepare_cached(
            "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (key) DO UPDATE SET fields = excluded.fields,
                tombstone_ends_at = excluded.tombstone_ends_at,
                highest_number = excluded.highest_number",
        )?
        .execute(params![
            key.secret(),
            json,
            stored_number(record.life.tombstone_ends_at(tuning).unix_ms()),
            stored_number(record.generation.max(record.highest_epoch)),
        ])?;
    Ok(())
}

fn remove(
    transaction: &Transaction<'_>,
    key: &SessionKey,
    highest_number: u64,
) -> Result<(), Failed> {
    transaction.execute("DELETE FROM sessions WHERE key = ?1", [key.secret()])?;
    raise_floor(transaction, stored_number(highest_number))?;
    Ok(())
}

fn read_floor(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT value FROM numbers WHERE name = 'floor'")?
        .query_row([], |row| read_number(row, 0))
}

fn raise_floor(transaction: &Transaction<'_>, to: i64) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE numbers SET value = max(value, ?1) WHERE name = 'floor'",
        [to],
    )?;
    Ok(())
}

/// SQLite's integers are signed; the times and numbers of the rules stay far below that.
pub(super) fn stored_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that [`stored_number`] wrote; a negative one, which only a hand can have written, reads as zero.
pub(super) fn read_number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column)
        .map(|number| u64::try_from(number).unwrap_or(0))
}
