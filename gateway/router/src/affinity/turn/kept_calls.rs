//! The calls that keep a turn which was delegated: its ticket does not name them, so their cancellations come here.
//!
//! Invariant: a call is here from when it keeps its turn until that ends.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::running_call::{DelegationKey, RunningCall};
use crate::lock_stripes::LockStripes;

/// The calls of this process that keep a turn which was delegated.
#[derive(Debug, Default)]
pub(in crate::affinity) struct KeptCalls(
    LockStripes<HashMap<DelegationKey, RunningCall, RandomState>>,
);

/// A call that keeps a turn which was delegated, until this is dropped.
#[derive(Debug)]
pub(in crate::affinity) struct KeptCall {
    calls: Arc<KeptCalls>,
    key: DelegationKey,
    call: RunningCall,
}

impl KeptCalls {
    /// The call that keeps this turn, if one does.
    pub(super) fn get(&self, key: &DelegationKey) -> Option<RunningCall> {
        self.0.part_of(key).get(key).cloned()
    }

    /// The call keeps this turn.
    pub(super) fn insert(self: &Arc<Self>, key: &DelegationKey, call: &RunningCall) -> KeptCall {
        self.0.part_of(key).insert(key.clone(), call.clone());
        KeptCall {
            calls: Arc::clone(self),
            key: key.clone(),
            call: call.clone(),
        }
    }
}

impl Drop for KeptCall {
    fn drop(&mut self) {
        let mut kept = self.calls.0.part_of(&self.key);
        if kept.get(&self.key).is_some_and(|call| call.is(&self.call)) {
            kept.remove(&self.key);
        }
    }
}
