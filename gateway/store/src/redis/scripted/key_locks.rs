//! The steps of one gateway on one session, or on one rate, are done one after the other, so that they do not disturb each
//! other.
//!
//! Invariant: a key without steps under way takes no memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

use crate::lock::lock;

/// The locks of keys with steps under way.
#[derive(Debug)]
pub(super) struct KeyLocks<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

/// A lock that is held. Dropping it removes the key unless another caller waits for it.
pub(super) struct KeyLock<'a, K: Eq + Hash> {
    locks: &'a KeyLocks<K>,
    key: K,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K> Default for KeyLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> KeyLocks<K> {
    /// The lock of a key itself.
    pub(super) fn of(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(lock(&self.0).entry(key.clone()).or_default())
    }

    /// Waits for the lock of a key.
    pub(super) async fn lock(&self, key: &K) -> KeyLock<'_, K> {
        // Dropped while it waits, it forgets the key too.
        let mut locked = KeyLock {
            locks: self,
            key: key.clone(),
            guard: None,
        };
        locked.guard = Some(self.of(key).lock_owned().await);
        locked
    }

    /// The same where the guard is there already.
    pub(super) fn held(&self, key: &K, guard: OwnedMutexGuard<()>) -> KeyLock<'_, K> {
        KeyLock {
            locks: self,
            key: key.clone(),
            guard: Some(guard),
        }
    }
}

impl<K: Eq + Hash> Drop for KeyLock<'_, K> {
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
