//! Handles failures of the file: a damaged one is replaced by a new one, an unwritable one by memory.
//!
//! Invariants: each replacement is logged as an error; a command that failed because of it is retried once; if another
//! process has replaced the file, that is noticed before the next command.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;

use super::database::Database;
use super::failure::TransactionError;
use super::file::{FileConnection, MemoryUse};
use super::memory_copy;
use super::schema::{self, Check};
use crate::error::{NotReady, OpenError, StoreError};
use crate::status::{StatusCell, StoreMode};

/// Opens the file, or starts in memory if it can be neither created nor opened.
///
/// # Errors
/// The file has a newer version, or another process has locked it for too long.
pub(super) fn open(path: &Path, status: &StatusCell) -> Result<FileConnection, OpenError> {
    schema::open(path, Check::Usual).or_else(|error| {
        if !is_unwritable(&error) {
            return Err(error);
        }
        copied(None, path, &error, status).map_err(|_| error)
    })
}

fn is_unwritable(error: &OpenError) -> bool {
    match error {
        // The process that holds the lock for so long is still using the file.
        OpenError::Place { source, .. } => source.kind() != ErrorKind::TimedOut,
        OpenError::File { source, .. } => is_write_failure(source),
        _ => false,
    }
}

/// Whether the error means that the disk is full, or that the file or its directory is not writable.
fn is_write_failure(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure
        )
    )
}

fn copied(
    open: Option<&FileConnection>,
    path: &Path,
    error: &dyn std::error::Error,
    status: &StatusCell,
) -> rusqlite::Result<FileConnection> {
    let (copy, extent) = memory_copy::make(open.map(|opened| &**opened), path)?;
    let reason = error.source().map(ToString::to_string);
    tracing::error!(
        file = %path.display(),
        %error,
        reason = reason.unwrap_or_default(),
        copied = extent,
        "the sessions' file cannot be written: sessions go on in the memory of this process, and are written to it when \
         that can be done again"
    );
    status.set(StoreMode::Degraded);
    Ok(FileConnection::memory(copy, MemoryUse::Copy))
}

impl Database {
    /// Runs the work, and a second time if the file failed and was replaced.
    pub(super) fn with_repair<R>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<R, TransactionError>,
    ) -> Result<R, StoreError> {
        if !self.reopen_if_replaced() {
            return Err(StoreError::NotReady(NotReady::Locked));
        }
        let done = match work(self) {
            Err(TransactionError::Sqlite(error)) if self.repair(&error) => work(self),
            done => done,
        };
        done.map_err(StoreError::from)
    }

    /// Switches to the file at the path if another process has replaced it, and returns whether it did. Writes to the
    /// earlier file would be lost.
    fn reopen_if_replaced(&mut self) -> bool {
        if self.connection.is_in_place() {
            return true;
        }
        tracing::warn!(file = %self.path.display(), "the sessions' file was replaced or removed");
        self.open_again(Check::Usual)
    }

    /// Replaces the file after such an error, and returns whether it did.
    fn repair(&mut self, error: &rusqlite::Error) -> bool {
        if self.connection.memory_use().is_some() {
            return false;
        }
        if schema::is_damage(error) {
            tracing::error!(file = %self.path.display(), %error, "the sessions' file is damaged");
            return self.open_again(Check::Whole);
        }
        is_write_failure(error) && self.continue_in_memory(error)
    }

    fn open_again(&mut self, check: Check) -> bool {
        match schema::open(&self.path, check) {
            Ok(opened) => {
                self.serve_from(opened);
                true
            }
            Err(error) if is_unwritable(&error) => self.continue_in_memory(&error),
            Err(error) => {
                tracing::error!(%error, "the sessions' file cannot be opened");
                false
            }
        }
    }

    fn continue_in_memory(&mut self, error: &dyn std::error::Error) -> bool {
        let status = Arc::clone(&self.status);
        match copied(Some(&self.connection), &self.path, error, &status) {
            Ok(copy) => {
                self.serve_from(copy);
                true
            }
            Err(error) => {
                tracing::error!(%error, "the sessions cannot be served from memory");
                false
            }
        }
    }

    /// Writes the changes in memory back if the file is writable again.
    pub(super) fn return_to_file(&mut self) {
        if self.connection.memory_use() != Some(MemoryUse::Copy) {
            return;
        }
        let mut opened = match schema::open(&self.path, Check::Usual) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::debug!(%error, "the sessions' file cannot be opened yet");
                return;
            }
        };
        let done = match memory_copy::write_back(&self.connection, &mut opened) {
            Ok(done) => done,
            Err(error) => {
                tracing::debug!(%error, "the sessions' file cannot be written yet");
                return;
            }
        };
        for key in &done.discarded {
            tracing::warn!(
                session = %mooring_secrets::digest::short(key),
                "session changed in the file by another process meanwhile: changes in memory discarded"
            );
        }
        tracing::info!(
            file = %self.path.display(),
            written = done.written,
            "session file writable again; changes in memory written back"
        );
        self.serve_from(opened);
        self.status.set(StoreMode::Normal);
    }

    fn serve_from(&mut self, opened: FileConnection) {
        self.connection = opened;
        (self.known_workers).continue_from(self.connection.memory_use(), &self.clock);
        self.recent_sessions.clear();
        self.reaped_to.clear();
    }
}
