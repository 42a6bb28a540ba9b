//! The steps of one gateway on the turns of one session are done one after the other, so that they do not disturb each other.
//!
//! Invariant: a session without steps under way takes no memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

use crate::key::SessionKey;
use crate::lock::lock;

/// The locks of sessions with steps under way.
#[derive(Debug, Default)]
pub(super) struct SessionLocks(Mutex<HashMap<SessionKey, Arc<tokio::sync::Mutex<()>>>>);

/// A lock that is held. Dropping it forgets the session if nobody else waits for it.
pub(super) struct SessionLock<'a> {
    locks: &'a SessionLocks,
    key: SessionKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl SessionLocks {
    /// The lock of a session itself.
    pub(super) fn of(&self, key: &SessionKey) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(lock(&self.0).entry(key.clone()).or_default())
    }

    /// Waits for the lock of a session.
    pub(super) async fn lock(&self, key: &SessionKey) -> SessionLock<'_> {
        // Dropped while it waits, it forgets the session too.
        let mut locked = SessionLock {
            locks: self,
            key: key.clone(),
            guard: None,
        };
        locked.guard = Some(self.of(key).lock_owned().await);
        locked
    }

    /// The same where the guard is there already.
    pub(super) fn held(&self, key: &SessionKey, guard: OwnedMutexGuard<()>) -> SessionLock<'_> {
        SessionLock {
            locks: self,
            key: key.clone(),
            guard: Some(guard),
        }
    }
}

impl Drop for SessionLock<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = lock(&self.locks.0);
        if let Some(known) = locks.get(&self.key)
            && Arc::strong_count(known) == 1
        {
            locks.remove(&self.key);
        }
    }
}
