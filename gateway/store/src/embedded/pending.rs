//! The sessions with commands that are queued for the thread.
//!
//! Invariant: while a session has one, a later command on it is not done before it. Otherwise a LEAVE could overtake
//! the ENTER of a caller that is gone, so that its turn would never be released, and calls would not be ordered by
//! arrival.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::key::SessionKey;

/// Counters that all sessions share by their keys. Of two with the same one, each waits for the other's commands too.
const COUNTERS: usize = 256;

/// How many commands are on their way, by session.
#[derive(Debug)]
pub(super) struct PendingCommands {
    counters: Arc<[AtomicUsize]>,
    hasher: RandomState,
}

/// A command on its way. It is done, or never will be, when this is dropped.
#[derive(Debug)]
pub(super) struct PendingCommand {
    counters: Arc<[AtomicUsize]>,
    index: usize,
}

impl PendingCommands {
    pub(super) fn new() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicUsize::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Notes a command on this session.
    pub(super) fn begin(&self, key: &SessionKey) -> PendingCommand {
        let command = PendingCommand {
            counters: Arc::clone(&self.counters),
            index: self.index(key),
        };
        if let Some(counter) = command.counter() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        command
    }

    /// Whether a command on this session is on its way.
    pub(super) fn has(&self, key: &SessionKey) -> bool {
        let counter = self.counters.get(self.index(key));
        counter.is_some_and(|counter| counter.load(Ordering::SeqCst) > 0)
    }

    fn index(&self, key: &SessionKey) -> usize {
        self.hasher.hash_one(key) as usize % COUNTERS
    }
}

impl PendingCommand {
    fn counter(&self) -> Option<&AtomicUsize> {
        self.counters.get(self.index)
    }
}

impl Drop for PendingCommand {
    fn drop(&mut self) {
        if let Some(counter) = self.counter() {
            counter.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
