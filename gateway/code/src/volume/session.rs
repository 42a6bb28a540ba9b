//! One session's place on the volume: what callers hold.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::directory;
use super::lock::{self, LockError, LockName, SessionLock};
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
        self.ttl_ms = directory::millis(session_ttl);
        self
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
