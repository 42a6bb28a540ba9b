//! What all connections of one run's proxy share: where they may go, and what came of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::addresses::AddressPolicy;
use super::refusal::RefusedRequest;

/// Most refusals of one run that are logged and reported.
const REPORTED_MAX: usize = 100;

/// The traffic of a proxy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Egress connections made.
    pub connections: u64,
    /// The first requests that were refused, at most 100.
    pub refused: Vec<RefusedRequest>,
}

/// The state shared by all connections of a proxy.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) policy: Arc<AddressPolicy>,
    traffic: Mutex<Traffic>,
}

impl Shared {
    pub(super) fn new(policy: Arc<AddressPolicy>) -> Self {
        Self {
            policy,
            traffic: Mutex::default(),
        }
    }

    pub(super) fn note_connection(&self) {
        self.traffic().connections += 1;
    }

    pub(super) fn note_refusal(&self, refused: RefusedRequest) {
        let mut traffic = self.traffic();
        if traffic.refused.len() < REPORTED_MAX {
            tracing::info!(
                destination = ?refused.destination,
                reason = refused.why.as_str(),
                address = ?refused.why.address(),
                "egress request refused"
            );
            traffic.refused.push(refused);
        }
    }

    /// What there was since the last time.
    pub(super) fn take_traffic(&self) -> Traffic {
        std::mem::take(&mut *self.traffic())
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
