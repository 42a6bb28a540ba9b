//! Rows of `sessions` and `bindings`: a record's fields, and columns for queries over many records.
//!
//! Invariants: the fields are the record, and the columns agree with it, because both are always written together;
//! columns only select, and the fields decide. Fields unknown to this version are preserved. Only `last_used_at` has
//! more than the record: it also counts uses for which the record was not written.

use std::collections::BTreeMap;

use mooring_session::Tuning;
use mooring_session::codec::{self, CorruptRecord};
use mooring_session::context::RecordChange;
use mooring_session::record::{Lifecycle, Record};
use mooring_session::refusal::Refusal;
use mooring_session::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::failure::TransactionError;

/// One record's fields by name, readable in the sqlite3 shell.
pub(super) type Fields = BTreeMap<String, String>;

/// A row of `sessions`.
pub(super) struct SessionRow {
    pub(super) fields: Fields,
    pub(super) last_used_at: Timestamp,
    pub(super) tombstone_ends_at: Timestamp,
    pub(super) highest_number: u64,
}

/// A record's times in columns.
pub(super) struct Times<'a> {
    /// The last use of the session.
    pub(super) used_at: Timestamp,
    pub(super) tuning: &'a Tuning,
}

pub(super) fn load(
    connection: &Connection,
    key: &str,
) -> Result<Option<SessionRow>, TransactionError> {
    let row = connection
        .prepare_cached(
            "SELECT fields, tombstone_ends_at, highest_number, last_used_at FROM sessions WHERE key = ?1",
        )?
        .query_row([key], |row| {
            Ok((
                row.get::<_, String>(0)?,
                read_number(row, 1)?,
                read_number(row, 2)?,
                read_number(row, 3)?,
            ))
        })
        .optional()?;
    let Some((json, ends_at, highest_number, last_used_at)) = row else {
        return Ok(None);
    };
    Ok(Some(SessionRow {
        fields: parse(&json)?,
        last_used_at: Timestamp::from_unix_ms(last_used_at),
        tombstone_ends_at: Timestamp::from_unix_ms(ends_at),
        highest_number,
    }))
}

/// Parses the column `fields`.
pub(super) fn parse(json: &str) -> Result<Fields, Refusal> {
    serde_json::from_str(json).map_err(|_| unreadable())
}

pub(super) fn decode(fields: &Fields) -> Result<Record, Refusal> {
    Ok(codec::decode(as_bytes(fields))?)
}

fn as_bytes(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields
        .iter()
        .map(|(field, value)| (field.as_bytes(), value.as_bytes()))
}

fn unreadable() -> Refusal {
    Refusal::Corrupt(CorruptRecord::field(b"fields"))
}

/// Writes the record under the key, over its earlier fields.
pub(super) fn save(
    transaction: &Transaction<'_>,
    key: &str,
    before: Option<&Fields>,
    record: &Record,
    written: RecordChange,
    times: &Times<'_>,
) -> Result<(), TransactionError> {
    let mut fields = before.cloned().unwrap_or_default();
    let changes = codec::changes(before.into_iter().flat_map(as_bytes), record);
    for field in changes.delete {
        fields.remove(&field);
    }
    fields.extend(changes.set);
    let json = serde_json::to_string(&fields).map_err(|_| unreadable())?;
    save_session(transaction, key, &json, record, times)?;
    // A change of use or deadline alone changes no binding.
    if written != RecordChange::Lifetime {
        save_bindings(transaction, key, record)?;
    }
    Ok(())
}

pub(super) fn save_session(
    transaction: &Transaction<'_>,
    key: &str,
    json: &str,
    record: &Record,
    times: &Times<'_>,
) -> rusqlite::Result<()> {
    let lifetime = &record.lifetime;
    let holds = !record.bindings.is_empty() || record.content_hash.is_some();
    let (lifecycle, over_at) = match lifetime.lifecycle {
        Lifecycle::Active => ("active", lifetime.expires_at),
        // Independent of the clock.
        Lifecycle::Ended => ("ended", Timestamp::default()),
    };
    transaction
        .prepare_cached(
            "INSERT INTO sessions (key, fields, principal, lifecycle, created_at, last_used_at, over_at, holds,
                tombstone_ends_at, highest_number)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (key) DO UPDATE SET fields = excluded.fields, principal = excluded.principal,
                lifecycle = excluded.lifecycle, created_at = excluded.created_at,
                last_used_at = excluded.last_used_at, over_at = excluded.over_at, holds = excluded.holds,
                tombstone_ends_at = excluded.tombstone_ends_at, highest_number = excluded.highest_number",
        )?
        .execute(params![
            key,
            json,
            record.principal.as_str(),
            lifecycle,
            stored_number(lifetime.created_at.unix_ms()),
            stored_number(times.used_at.unix_ms()),
            stored_number(over_at.unix_ms()),
            holds,
            stored_number(record.tombstone_ends_at(times.tuning).unix_ms()),
            stored_number(record.generation.max(record.highest_epoch)),
        ])?;
    Ok(())
}

pub(super) fn save_bindings(
    transaction: &Transaction<'_>,
    key: &str,
    record: &Record,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM bindings WHERE key = ?1")?
        .execute([key])?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO bindings (key, server, instance, owner, driver) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (server, binding) in &record.bindings {
        insert.execute(params![
            key,
            server.as_str(),
            binding.instance.as_str(),
            binding.owner.as_ref().map(|owner| owner.as_str()),
            binding.driver.as_str(),
        ])?;
    }
    Ok(())
}

/// Deletes the row of a record that is gone, but keeps its numbers.
pub(super) fn remove(
    transaction: &Transaction<'_>,
    key: &str,
    highest_number: u64,
) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
    raise_floor(transaction, stored_number(highest_number))
}

pub(super) fn read_floor(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT value FROM numbers WHERE name = 'floor'")?
        .query_row([], |row| read_number(row, 0))
}

pub(super) fn raise_floor(transaction: &Transaction<'_>, to: i64) -> rusqlite::Result<()> {
    transaction.execute(
        "UPDATE numbers SET value = max(value, ?1) WHERE name = 'floor'",
        [to],
    )?;
    Ok(())
}

/// SQLite's integers are signed; times and numbers of the rules are far below the limit.
pub(super) fn stored_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a number written by [`stored_number`]; a negative one, which must have been edited by hand, reads as zero.
pub(super) fn read_number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column)
        .map(|number| u64::try_from(number).unwrap_or(0))
}
