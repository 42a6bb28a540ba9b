//! What SQLite's errors mean for a caller.

use rusqlite::ErrorCode;

use crate::error::NotReady;

/// Sorts an error of SQLite. The text of its own message is kept only where no case of ours says more.
pub(super) fn not_ready(error: &rusqlite::Error) -> NotReady {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => NotReady::Locked,
        Some(ErrorCode::DiskFull) => NotReady::DiskFull,
        Some(ErrorCode::ReadOnly) => NotReady::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => NotReady::Damaged,
        _ => NotReady::File(error.to_string().into()),
    }
}
