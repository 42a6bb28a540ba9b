//! The tables, their version, and how the file is opened.
//!
//! Invariants: `PRAGMA user_version` says which schema the file has, and a newer one is refused; only the file's owner
//! may read it, because it holds session ids.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::store::error::OpenError;

/// The version of the tables below.
pub(super) const SCHEMA_VERSION: i64 = 1;
/// How long SQLite waits for another process's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// `fields` is a JSON object of the same field names and values that a record has in Redis.
const TABLES: &str = "
CREATE TABLE sessions (
    key TEXT PRIMARY KEY,
    fields TEXT NOT NULL,
    tombstone_ends_at INTEGER NOT NULL,
    highest_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (tombstone_ends_at);
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
PRAGMA user_version = 1;
";

/// Opens the file, makes it and its directory where they are missing, and brings the tables into place.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let failed = |source| OpenError::File {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        make_directory(directory).map_err(|source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        })?;
    }
    // The file is made before SQLite opens it, because SQLite gives it, and the log beside it, the usual permissions.
    make_private(path).map_err(|source| OpenError::Directory {
        path: path.to_owned(),
        source,
    })?;
    let mut connection = Connection::open(path).map_err(failed)?;
    let found = prepare(&mut connection).map_err(failed)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(connection)
}

/// Answers the version that the file has now.
fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let found = version(connection)?;
    if found > SCHEMA_VERSION {
        return Ok(found);
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Two processes may start at once: the second finds the tables when it gets the lock.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.execute_batch(TABLES)?;
    }
    transaction.commit()?;
    version(connection)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(unix)]
fn make_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

#[cfg(unix)]
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    match fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}
