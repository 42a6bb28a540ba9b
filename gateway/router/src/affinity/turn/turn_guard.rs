//! The check of a turn right before a request is written.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::keeper::FirstRenewal;
use super::signals::TurnSignals;
use super::{HeldTurns, TurnPlace};
use mooring_upstream::{PermitSource, SendPermit};

/// Longest wait for the renewal of a turn that is not valid any more.
const RENEWAL_MAX: Duration = Duration::from_secs(2);

/// Tells whether a turn still excludes all other calls. Cheap to clone. It does not keep the turn.
#[derive(Clone, Debug)]
pub struct TurnGuard {
    signals: Arc<TurnSignals>,
    held: Option<(Arc<HeldTurns>, TurnPlace)>,
}

impl PermitSource for TurnSignals {
    fn is_valid(&self) -> bool {
        self.is_valid()
    }
}

impl TurnGuard {
    pub(super) fn new(
        signals: &Arc<TurnSignals>,
        held: Option<(Arc<HeldTurns>, TurnPlace)>,
    ) -> Self {
        Self {
            signals: Arc::clone(signals),
            held,
        }
    }

    /// Whether the call has the turn and no other call can have it now. Not if the turn was released or lost, and not after a
    /// pause or an outage of the store that may have outlived the lease.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.signals.is_valid()
    }

    /// The permit of the call's messages.
    #[must_use]
    pub fn permit(&self) -> SendPermit {
        SendPermit::new(Arc::<TurnSignals>::clone(&self.signals))
    }

    /// The same after the store has renewed the turn, which also makes a delegated turn the call's own. False if the turn is
    /// not the call's any more, or if the store does not answer within 2 s.
    pub async fn revalidate(&self) -> bool {
        if self.is_valid() {
            return true;
        }
        if let Some((held, place)) = &self.held {
            held.keep(*place, &self.signals, FirstRenewal::Now);
        }
        self.signals.ask_for_renewal();
        let validity = timeout(RENEWAL_MAX, self.signals.validity());
        validity.await.unwrap_or(false)
    }
}
