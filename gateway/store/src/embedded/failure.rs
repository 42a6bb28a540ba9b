//! Maps SQLite's errors to those of the store.

use rusqlite::ErrorCode;

use crate::error::NotReady;

/// Classifies an error of SQLite. Its message is kept only if no variant is more specific.
pub(super) fn not_ready(error: &rusqlite::Error) -> NotReady {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => NotReady::Locked,
        Some(ErrorCode::DiskFull) => NotReady::DiskFull,
        Some(ErrorCode::ReadOnly) => NotReady::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => NotReady::Damaged,
        _ => NotReady::File(error.to_string().into()),
    }
}
