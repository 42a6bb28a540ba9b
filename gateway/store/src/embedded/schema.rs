//! Opens the file.
//!
//! Invariants: `PRAGMA user_version` is the file's schema version; a newer one is refused, and an older one migrated;
//! only the file's owner may read it, because it contains session ids; a damaged file is moved aside, never deleted,
//! and no other error counts as damage.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, ffi};

use super::file::{self, FileConnection, FileId, FileLock};
use super::tables::{self, SCHEMA_VERSION, version};
use crate::error::OpenError;

/// SQLite's timeout for another process's write lock. Shorter than a caller's timeout.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(12);
/// Largest file that is checked whenever it is opened. Damage in a larger one is found when it is read.
const CHECKED_BYTES_MAX: i64 = 8 * 1_024 * 1_024;

/// How thoroughly a file is checked before use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Its pages, unless it is large.
    Usual,
    /// Everything, since damage was found.
    Whole,
}

/// Opens the file, creating it and its directory if they are missing, and migrates its tables. If several processes do
/// so concurrently, one creates them and the others find them.
pub(super) fn open(path: &Path, check: Check) -> Result<FileConnection, OpenError> {
    if check == Check::Usual
        && let Some(opened) = open_unchanged(path)
    {
        return Ok(opened);
    }
    if let Some(directory) = path.parent() {
        file::make_directory(directory).map_err(|source| of_place(directory, source))?;
    }
    let _lock = FileLock::take(path).map_err(|source| of_place(path, source))?;
    match make(path, check) {
        Err(OpenError::File { source, .. }) if is_damage(&source) => {
            let moved_to = file::move_aside(path).map_err(|source| of_place(path, source))?;
            tracing::error!(
                file = %path.display(),
                moved_to = %moved_to.display(),
                error = %source,
                "session file damaged: moved aside, and a new one created"
            );
            make(path, check)
        }
        made => made,
    }
}

fn of_place(path: &Path, source: std::io::Error) -> OpenError {
    OpenError::Place {
        path: path.to_owned(),
        source,
    }
}

/// Whether the error means that the file is not a database, or an incomplete one.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    )
}

/// The file if it needs no changes; this needs no lock.
fn open_unchanged(path: &Path) -> Option<FileConnection> {
    let id = FileId::at(path).ok()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened =
        FileConnection::file(Connection::open_with_flags(path, flags).ok()?, path, id).ok()?;
    opened.busy_timeout(BUSY_TIMEOUT).ok()?;
    let mode: String = opened
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .ok()?;
    if version(&opened).ok()? != SCHEMA_VERSION || mode != "wal" {
        return None;
    }
    set_synchronous(&opened).ok()?;
    check_damage(&opened, Check::Usual).ok()?;
    opened.is_in_place().then_some(opened)
}

/// The file, created if it is missing. Called under the lock.
fn make(path: &Path, check: Check) -> Result<FileConnection, OpenError> {
    let failed = |source| OpenError::File {
        path: path.to_owned(),
        source,
    };
    file::make_private(path).map_err(|source| of_place(path, source))?;
    let id = FileId::at(path).map_err(|source| of_place(path, source))?;
    let connection = Connection::open(path).map_err(failed)?;
    let mut opened = FileConnection::file(connection, path, id).map_err(failed)?;
    let found = prepare(&mut opened, check).map_err(failed)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(opened)
}

/// Prepares the file and returns its version.
fn prepare(connection: &mut Connection, check: Check) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let found = version(connection)?;
    if found > SCHEMA_VERSION {
        return Ok(found);
    }
    check_damage(connection, check)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    set_synchronous(connection)?;
    // A process of an earlier release, which does not lock, may create the tables too: the second one finds them.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tables::bring_up_to_date(&transaction)?;
    transaction.commit()?;
    version(connection)
}

fn set_synchronous(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")
}

/// Fails with the error of SQLite if the check finds damage.
fn check_damage(connection: &Connection, check: Check) -> rusqlite::Result<()> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pragma = match check {
        Check::Whole => "integrity_check",
        Check::Usual => "quick_check",
    };
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    if check == Check::Usual && bytes > CHECKED_BYTES_MAX {
        return Ok(());
    }
    let found: String = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    let code = ffi::Error::new(ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(code, Some(found)))
}
