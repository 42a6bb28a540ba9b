//! Failures of commands on the file.

use mooring_session::refusal::Refusal;
use rusqlite::ErrorCode;

use crate::error::{NotReady, StoreError};

/// Errors inside a transaction.
#[derive(Debug)]
pub(super) enum TransactionError {
    /// An error that is the store's reply.
    Store(StoreError),
    /// A failure of SQLite.
    Sqlite(rusqlite::Error),
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refusal> for TransactionError {
    fn from(refusal: Refusal) -> Self {
        Self::Store(refusal.into())
    }
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<TransactionError> for StoreError {
    fn from(failed: TransactionError) -> Self {
        match failed {
            TransactionError::Store(error) => error,
            TransactionError::Sqlite(error) => Self::NotReady(not_ready(&error)),
        }
    }
}

/// Classifies an error of SQLite.
fn not_ready(error: &rusqlite::Error) -> NotReady {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => NotReady::Locked,
        _ => NotReady::File(error.to_string().into()),
    }
}
