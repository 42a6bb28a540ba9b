//! The servers that lost the state of a code session, as the results of a run's calls say.
//!
//! Code gets the content of a result and not its mark, so the answer of the run tells the model.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ids of these servers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostStates(Arc<Mutex<BTreeSet<Box<str>>>>);

impl LostStates {
    /// Notes a server of the settings, of which there are few.
    pub(super) fn note(&self, server: &str) {
        self.lock().insert(server.into());
    }

    /// The ids, in order.
    pub(crate) fn servers(&self) -> Vec<Box<str>> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
