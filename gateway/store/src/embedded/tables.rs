//! The tables of the file, and its migration from earlier versions.
//!
//! Invariant: a file is migrated in the same transaction that reads its version; if the process is killed meanwhile,
//! the file is unchanged.

use mooring_session::Tuning;
use rusqlite::{Connection, Transaction, params};

use super::row;

/// The version of the tables below.
pub(super) const SCHEMA_VERSION: i64 = 4;

/// `fields` is the record: a JSON object with the same field names and values as a record in Redis. The other columns,
/// and all of `bindings`, are for queries over many records. `over_at` is when the record stops being active: its
/// deadline, or 0 if it was ended. `last_used_at` also counts uses for which the record was not written.
const SESSIONS: &str = "
CREATE TABLE sessions (
    ordinal INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    fields TEXT NOT NULL,
    principal TEXT NOT NULL,
    lifecycle TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    over_at INTEGER NOT NULL,
    holds INTEGER NOT NULL,
    tombstone_ends_at INTEGER NOT NULL,
    highest_number INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_end ON sessions (tombstone_ends_at);
CREATE INDEX sessions_by_creation ON sessions (created_at, ordinal);
CREATE INDEX sessions_by_principal ON sessions (principal, last_used_at) WHERE lifecycle = 'active';
CREATE INDEX sessions_to_clean ON sessions (over_at) WHERE holds = 1;
CREATE TABLE bindings (
    key TEXT NOT NULL,
    server TEXT NOT NULL,
    instance TEXT NOT NULL,
    owner TEXT,
    driver TEXT NOT NULL,
    PRIMARY KEY (key, server)
) STRICT, WITHOUT ROWID;
CREATE INDEX bindings_by_place ON bindings (server, instance);
CREATE INDEX bindings_by_instance ON bindings (instance);
CREATE INDEX bindings_by_owner ON bindings (owner) WHERE owner IS NOT NULL;
CREATE TRIGGER bindings_of_a_dropped_session AFTER DELETE ON sessions BEGIN
    DELETE FROM bindings WHERE key = OLD.key;
END;
";

const RATES: &str = "
CREATE TABLE rates (
    name TEXT PRIMARY KEY,
    spent TEXT NOT NULL,
    lapses_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX rates_by_lapse ON rates (lapses_at);
";

const SEALED: &str = "
CREATE TABLE sealed (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The fields of what operators want of the fleet.
const DESIRED_STATE: &str = "
CREATE TABLE desired_state (
    field TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// `entries` are lines, the oldest first. `session` is a digest.
const HISTORIES: &str = "
CREATE TABLE histories (
    session TEXT PRIMARY KEY,
    entries TEXT NOT NULL,
    lapses_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX histories_by_lapse ON histories (lapses_at);
";

/// Tables that are unchanged since the first version.
const OTHERS: &str = "
CREATE TABLE workers (
    ordinal INTEGER PRIMARY KEY,
    worker TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    last_beat_at INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;
CREATE INDEX workers_by_name ON workers (name);
CREATE TABLE inits (
    digest TEXT PRIMARY KEY,
    params TEXT NOT NULL,
    lapses_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE numbers (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO numbers VALUES ('floor', 0);
";

/// The version of a file; 0 for an empty one.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Creates or migrates the tables, from whatever version the file has.
pub(super) fn bring_up_to_date(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    match version(transaction)? {
        0 => {
            transaction.execute_batch(SESSIONS)?;
            transaction.execute_batch(RATES)?;
            transaction.execute_batch(OTHERS)?;
            transaction.execute_batch(SEALED)?;
        }
        1 => {
            from_version_1(transaction)?;
            transaction.execute_batch(RATES)?;
            transaction.execute_batch(SEALED)?;
        }
        2 => transaction.execute_batch(SEALED)?,
        3 => {}
        _ => return Ok(()),
    }
    transaction.execute_batch(DESIRED_STATE)?;
    transaction.execute_batch(HISTORIES)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// Version 1 had only key and fields.
fn from_version_1(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "DROP INDEX sessions_by_end;
         ALTER TABLE sessions RENAME TO sessions_1;",
    )?;
    transaction.execute_batch(SESSIONS)?;
    let mut rows = transaction
        .prepare("SELECT key, fields, tombstone_ends_at, highest_number FROM sessions_1")?;
    let mut rows = rows.query([])?;
    while let Some(old) = rows.next()? {
        let (key, json): (String, String) = (old.get(0)?, old.get(1)?);
        let record = row::parse(&json).and_then(|fields| row::decode(&fields));
        match record {
            Ok(record) => {
                let times = row::Times {
                    used_at: record.lifetime.last_used_at,
                    tuning: &Tuning::default(),
                };
                row::save_session(transaction, &key, &json, &record, &times)?;
                row::save_bindings(transaction, &key, &record)?;
            }
            // Requests for it are still refused as corrupt, until its tombstone ends.
            Err(_) => keep_unreadable(transaction, &key, &json, old.get(2)?, old.get(3)?)?,
        }
    }
    transaction.execute_batch("DROP TABLE sessions_1")
}

fn keep_unreadable(
    transaction: &Transaction<'_>,
    key: &str,
    json: &str,
    tombstone_ends_at: i64,
    highest_number: i64,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO sessions (key, fields, principal, lifecycle, created_at, last_used_at, over_at, holds,
            tombstone_ends_at, highest_number)
         VALUES (?1, ?2, '', 'unreadable', 0, 0, 0, 0, ?3, ?4)",
        params![key, json, tombstone_ends_at, highest_number],
    )?;
    Ok(())
}
