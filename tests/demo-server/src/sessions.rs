//! The sessions of this process and their counts.
//!
//! Invariant: a count is reachable by its session's id only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most sessions at once. A demonstration has a few.
const SESSIONS_MAX: usize = 10_000;

/// Counts by session id.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, u64>>);

impl Sessions {
    /// Begins a session; nothing where there are too many.
    pub(crate) fn begin(&self) -> Option<String> {
        let mut counts = self.lock();
        if counts.len() >= SESSIONS_MAX {
            return None;
        }
        let id = format!("{:032x}", rand::random::<u128>());
        counts.insert(id.clone(), 0);
        Some(id)
    }

    /// Whether there is such a session.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// The session's next number, from 1.
    pub(crate) fn increment(&self, id: &str) -> Option<u64> {
        let mut counts = self.lock();
        let count = counts.get_mut(id)?;
        *count += 1;
        Some(*count)
    }

    /// Ends a session; whether there was one.
    pub(crate) fn end(&self, id: &str) -> bool {
        self.lock().remove(id).is_some()
    }

    /// A panic cannot leave the table half-changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
