//! A copy of the file in memory, used while the file cannot be written, and how it is written back.
//!
//! Invariant: changes in the copy are written to the file in one transaction, row by row, and only over rows that are
//! as they were copied: changes by other processes stay.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Params, TransactionBehavior, params, params_from_iter,
};

use super::row;
use super::tables::{self, SCHEMA_VERSION, version};

/// The copied tables, with all their columns. Sealed values and what operators want are in the file alone.
const TABLES: [&str; 7] = [
    "sessions",
    "bindings",
    "workers",
    "inits",
    "numbers",
    "rates",
    "histories",
];
/// The columns of a session except its position in the file.
const SESSION: &str = "key, fields, principal, lifecycle, created_at, last_used_at, over_at, holds, \
                       tombstone_ends_at, highest_number";

/// `changed` has the key of each row that differs from the file, and the fields in the file.
const CHANGES: &str = "
CREATE TABLE changed (key TEXT PRIMARY KEY, base TEXT) STRICT, WITHOUT ROWID;
CREATE TRIGGER session_made AFTER INSERT ON sessions BEGIN
    INSERT INTO changed VALUES (NEW.key, NULL) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER session_changed AFTER UPDATE ON sessions WHEN OLD.fields IS NOT NEW.fields BEGIN
    INSERT INTO changed VALUES (OLD.key, OLD.fields) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER session_dropped AFTER DELETE ON sessions BEGIN
    INSERT INTO changed VALUES (OLD.key, OLD.fields) ON CONFLICT DO NOTHING;
END;
";

/// The result of writing back.
#[derive(Debug, Default)]
pub(super) struct WrittenBack {
    /// Number of sessions that were written.
    pub(super) written: usize,
    /// Keys of sessions that other processes have changed meanwhile.
    pub(super) discarded: Vec<String>,
}

/// Copies whatever can be read: through the existing connection, through a read-only one, or nothing. Tells how much it
/// was, for the log.
pub(super) fn make(
    open: Option<&Connection>,
    path: &Path,
) -> rusqlite::Result<(Connection, &'static str)> {
    const WHOLE: &str = "all of it";
    if let Some(copy) = open.and_then(|connection| of(connection).ok()) {
        return Ok((copy, WHOLE));
    }
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let plain = Connection::open_with_flags(path, read_only);
    if let Some(copy) = plain.ok().and_then(|connection| of(&connection).ok()) {
        return Ok((copy, WHOLE));
    }
    // If the directory is not writable, SQLite cannot create what it needs to read the log.
    let uri_without_log = uri_without_log(path).and_then(|uri| {
        Connection::open_with_flags(uri, read_only | OpenFlags::SQLITE_OPEN_URI).ok()
    });
    if let Some(copy) = uri_without_log.and_then(|connection| of(&connection).ok()) {
        return Ok((copy, "all but what was written last"));
    }
    let memory = empty()?;
    memory.execute_batch(CHANGES)?;
    Ok((memory, "nothing of it"))
}

fn uri_without_log(path: &Path) -> Option<String> {
    let escaped = path
        .to_str()?
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    Some(format!("file:{escaped}?immutable=1"))
}

/// An empty database in memory.
pub(super) fn empty() -> rusqlite::Result<Connection> {
    let mut memory = Connection::open_in_memory()?;
    let transaction = memory.transaction()?;
    tables::bring_up_to_date(&transaction)?;
    transaction.commit()?;
    Ok(memory)
}

fn of(source: &Connection) -> rusqlite::Result<Connection> {
    let mut memory = empty()?;
    let copy = memory.transaction()?;
    copy.execute_batch("DELETE FROM numbers")?;
    // A consistent snapshot of all tables.
    let source = source.unchecked_transaction()?;
    if version(&source)? != SCHEMA_VERSION {
        return Err(rusqlite::Error::InvalidQuery);
    }
    for table in TABLES {
        let select = format!("SELECT * FROM {table}");
        let places = vec!["?"; source.prepare(&select)?.column_count()].join(", ");
        let insert = format!("INSERT INTO {table} VALUES ({places})");
        copy_rows((&source, &select), [], (&copy, &insert))?;
    }
    copy.execute_batch(CHANGES)?;
    copy.commit()?;
    Ok(memory)
}

/// Runs the second statement with the values of each row of the first, which has these parameters.
fn copy_rows(
    (source, select): (&Connection, &str),
    parameters: impl Params,
    (target, insert): (&Connection, &str),
) -> rusqlite::Result<()> {
    let mut read = source.prepare_cached(select)?;
    let mut write = target.prepare_cached(insert)?;
    let columns = read.column_count();
    let mut rows = read.query(parameters)?;
    while let Some(row) = rows.next()? {
        let values = (0..columns)
            .map(|column| row.get(column))
            .collect::<rusqlite::Result<Vec<Value>>>()?;
        write.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// Writes the changes in the copy to the file. If the file still cannot be written, this fails and changes nothing.
pub(super) fn write_back(
    memory: &Connection,
    file: &mut Connection,
) -> rusqlite::Result<WrittenBack> {
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Numbers that were assigned in memory are not assigned again.
    let floor = row::stored_number(row::read_floor(memory)?);
    row::raise_floor(&transaction, floor)?;
    let mut done = WrittenBack::default();
    let mut changed = memory.prepare("SELECT key, base FROM changed")?;
    let mut rows = changed.query([])?;
    while let Some(change) = rows.next()? {
        let (key, base): (String, Option<String>) = (change.get(0)?, change.get(1)?);
        let current: Option<String> = transaction
            .prepare_cached("SELECT fields FROM sessions WHERE key = ?1")?
            .query_row([&key], |row| row.get(0))
            .optional()?;
        // Another process has changed it, or deleted it after it expired.
        if current != base {
            done.discarded.push(key);
            continue;
        }
        let used_at: Option<i64> = transaction
            .prepare_cached("SELECT last_used_at FROM sessions WHERE key = ?1")?
            .query_row([&key], |row| row.get(0))
            .optional()?;
        write_session(memory, &transaction, &key)?;
        // Another process has only recorded a use.
        transaction
            .prepare_cached(
                "UPDATE sessions SET last_used_at = max(last_used_at, ?2) WHERE key = ?1",
            )?
            .execute(params![key, used_at.unwrap_or(0)])?;
        done.written += 1;
    }
    write_others(memory, &transaction)?;
    transaction.commit()?;
    Ok(done)
}

fn write_session(memory: &Connection, file: &Connection, key: &str) -> rusqlite::Result<()> {
    file.prepare_cached("DELETE FROM sessions WHERE key = ?1")?
        .execute([key])?;
    let select = format!("SELECT {SESSION} FROM sessions WHERE key = ?1");
    let insert = format!("INSERT INTO sessions ({SESSION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    copy_rows((memory, &select), [key], (file, &insert))?;
    let select = "SELECT * FROM bindings WHERE key = ?1";
    let insert = "INSERT INTO bindings VALUES (?, ?, ?, ?, ?)";
    copy_rows((memory, select), [key], (file, insert))
}

/// Writes workers that sent heartbeats meanwhile, initialize params with a longer TTL, and histories that were written
/// later than the file's. Rates continue from the file's.
fn write_others(memory: &Connection, file: &Connection) -> rusqlite::Result<()> {
    let select =
        "SELECT worker, name, address, ttl_ms, last_beat_at, state FROM workers ORDER BY ordinal";
    let insert = "INSERT INTO workers (worker, name, address, ttl_ms, last_beat_at, state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (worker) DO UPDATE SET address = excluded.address, ttl_ms = excluded.ttl_ms,
            last_beat_at = excluded.last_beat_at, state = excluded.state
         WHERE excluded.last_beat_at > last_beat_at";
    copy_rows((memory, select), [], (file, insert))?;
    let select = "SELECT digest, params, lapses_at FROM inits";
    let insert = "INSERT INTO inits VALUES (?1, ?2, ?3)
         ON CONFLICT (digest) DO UPDATE SET lapses_at = max(lapses_at, excluded.lapses_at)";
    copy_rows((memory, select), [], (file, insert))?;
    let select = "SELECT session, entries, lapses_at FROM histories";
    let insert = "INSERT INTO histories VALUES (?1, ?2, ?3)
         ON CONFLICT (session) DO UPDATE SET entries = excluded.entries, lapses_at = excluded.lapses_at
         WHERE excluded.lapses_at > lapses_at";
    copy_rows((memory, select), [], (file, insert))
}
