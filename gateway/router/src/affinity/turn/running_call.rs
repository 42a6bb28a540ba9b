//! A call while it runs, as the [delegations](super::delegations) know it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mooring_delivery::BootTime;
use mooring_session::limits::DELEGATION_RECONNECT;
use mooring_session::names::{NameError, ServerName, Token};

use super::signals::TurnSignals;
use super::ticket_names;
use mooring_store::{SessionKey, fresh_token};

/// How long the store surely leaves the turns of a gateway whose wake-ups have broken: what it waits, less a margin for the
/// write of a request.
const RETURN_AWAITED: Duration = Duration::from_millis(DELEGATION_RECONNECT.get() - 100);

/// Whose turn it is: a session's at a server.
pub(in crate::affinity) type DelegationKey = (SessionKey, ServerName);

/// Where the turns of calls are while they have no task.
pub(super) trait TurnHolder: fmt::Debug + Send + Sync {
    /// Gives the turn with these signals its task, which renews it at once: now, or when it comes here.
    fn keep_wherever(&self, signals: &Arc<TurnSignals>);
}

/// A call. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::affinity) struct RunningCall {
    signals: Arc<TurnSignals>,
    holder: Arc<dyn TurnHolder>,
}

impl RunningCall {
    /// A call with this request id within its session, if its client can cancel it.
    pub(super) fn new(request_id: Option<Box<str>>, holder: Arc<dyn TurnHolder>) -> Self {
        Self {
            signals: Arc::new(TurnSignals::of(request_id)),
            holder,
        }
    }

    pub(super) const fn signals(&self) -> &Arc<TurnSignals> {
        &self.signals
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

    /// Its turn was delegated, and the store cannot recall that since `seen`: the turn becomes its own, at once. Until the
    /// store has confirmed that, it only lasts for as long as the store surely waits for this gateway to return.
    pub(in crate::affinity) fn keep_without_wake_ups(&self, seen: BootTime) {
        self.signals
            .end_at(BootTime(seen.0.saturating_add(RETURN_AWAITED)));
        self.keep_turn();
    }

    /// Its turn becomes its own, at once.
    pub(in crate::affinity) fn keep_turn(&self) {
        self.holder.keep_wherever(&self.signals);
    }
}
