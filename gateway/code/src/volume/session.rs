//! One session's place on the volume: what callers hold.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::lock::{self, LockError, LockName, SessionLock};
use super::open::{self, OpenedSession, SessionOpenError};
use super::tools::MountManifest;
use super::{Incarnation, Shared};
use crate::place::CodePlace;

/// One session's place on the volume. Holds nothing open.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) place: CodePlace,
    pub(super) ttl_ms: u64,
}

impl SessionHandle {
    pub(super) fn new(shared: Arc<Shared>, place: CodePlace) -> Self {
        Self {
            ttl_ms: shared.ttl_ms(),
            shared,
            place,
        }
    }

    /// The same session with a time to live of its own, where its server's policy has one.
    #[must_use]
    pub fn with_ttl(mut self, session_ttl: Duration) -> Self {
        self.ttl_ms = super::millis(session_ttl);
        self
    }

    /// Opens the session's directory for this incarnation, with these tools. If it is initialized for both, no lock is
    /// taken; otherwise the lock is waited for at most `wait`, and the directory is checked again under it.
    ///
    /// A directory that was opened without the lock may be retired before something is written: runs and writes take
    /// the lock and open by [`SessionHandle::open_locked`].
    ///
    /// # Errors
    /// [`SessionOpenError`] names the step. [`SessionOpenError::Superseded`] asks for reading the record again.
    pub fn open(
        &self,
        incarnation: Incarnation,
        mounted: &MountManifest,
        wait: Duration,
    ) -> Result<OpenedSession, SessionOpenError> {
        if let Some(opened) = open::without_lock(self, incarnation, mounted)? {
            return Ok(opened);
        }
        let lock = self.lock(wait)?;
        let mut opened = open::under_lock(self, &lock, incarnation, mounted)?;
        opened.lock_held = Some(lock.held());
        Ok(opened)
    }

    /// Opens it under a lock that the caller keeps: completes what a killed commit left, and makes sure that it is this
    /// incarnation's directory that the caller is about to change.
    ///
    /// # Errors
    /// As [`SessionHandle::open`].
    pub fn open_locked(
        &self,
        lock: &SessionLock,
        incarnation: Incarnation,
        mounted: &MountManifest,
    ) -> Result<OpenedSession, SessionOpenError> {
        open::under_lock(self, lock, incarnation, mounted)
    }

    /// Takes the session's lock, waiting at most `wait`: for a run with its commit, or for a write. Dropped with the
    /// value, or with the process.
    ///
    /// # Errors
    /// [`LockError::Busy`] if it was held for the whole wait.
    pub fn lock(&self, wait: Duration) -> Result<SessionLock, LockError> {
        lock::take(self.shared.base.as_fd(), LockName::of(&self.place), wait)
    }
}
