//! How the file is opened.
//!
//! Invariants: `PRAGMA user_version` says which schema the file has; a newer one is refused, and an older one is brought
//! up to date; only the file's owner may read it, because it holds session ids.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::tables::{self, SCHEMA_VERSION, version};
use crate::store::error::OpenError;

/// How long SQLite waits for another process's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

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
    tables::bring_up_to_date(&transaction)?;
    transaction.commit()?;
    version(connection)
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
