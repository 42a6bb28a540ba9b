//! A call while it runs, as the [delegations](super::delegations) know it.

use std::sync::Arc;

use mooring_session::names::{NameError, Token};

use super::delegations::DelegationKey;
use super::held_turns::HeldTurns;
use super::signals::TurnSignals;
use super::ticket_names;
use mooring_store::fresh_token;

/// A call. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::affinity) struct RunningCall {
    signals: Arc<TurnSignals>,
    /// Where its turn is while that has no task.
    held_turns: Arc<HeldTurns>,
}

impl RunningCall {
    /// A call with this request id within its session, if its client can cancel it.
    pub(in crate::affinity) fn new(
        request_id: Option<Box<str>>,
        held_turns: &Arc<HeldTurns>,
    ) -> Self {
        Self {
            signals: Arc::new(TurnSignals::of(request_id)),
            held_turns: Arc::clone(held_turns),
        }
    }

    pub(super) const fn signals(&self) -> &Arc<TurnSignals> {
        &self.signals
    }

    pub(super) const fn held_turns(&self) -> &Arc<HeldTurns> {
        &self.held_turns
    }

    /// A new ticket, with the name of the request.
    ///
    /// # Errors
    /// Never in practice.
    pub(in crate::affinity) fn ticket(&self, key: &DelegationKey) -> Result<Token, NameError> {
        match self.signals.request_id() {
            Some(id) => ticket_names::ticket(&key.0, &key.1, id),
            None => fresh_token(),
        }
    }

    /// Whether tickets of this call begin with this.
    pub(in crate::affinity) fn is_named(&self, key: &DelegationKey, beginning: &Token) -> bool {
        let id = self.signals.request_id();
        let beginnings = id.map(|id| ticket_names::beginnings(&key.0, &key.1, id));
        matches!(beginnings, Some(Ok([first, _])) if first == *beginning)
    }

    pub(in crate::affinity) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.signals, &other.signals)
    }

    /// Its client cancelled it: its turn ends after a grace.
    pub(in crate::affinity) fn withdraw(&self) {
        self.signals.withdraw();
        self.keep_turn();
    }

    /// Its turn becomes its own, at once.
    pub(in crate::affinity) fn keep_turn(&self) {
        self.held_turns.keep_wherever(&self.signals);
    }
}
