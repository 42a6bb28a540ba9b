//! A delegated turn while one call uses it.

use std::sync::Arc;

use mooring_delivery::Term;
use mooring_metrics::{self as metrics, DelegationEvent};
use mooring_session::rules::RouteReply;

use super::delegations::{DelegatedTurn, DelegationTable, usable_binding};
use super::keeper::{OwnTurn, TurnNumbers};
use super::running_call::DelegationKey;
use crate::affinity::boot_clock::boot_now;
use mooring_store::EnterReply;

/// A delegated turn that a call uses. Dropping it gives it back for the next call, or leaves it if it was recalled or the
/// store may have ended it.
#[derive(Debug)]
pub(in crate::affinity) struct DelegatedUse {
    table: Arc<DelegationTable>,
    key: DelegationKey,
    /// None once the call has kept it.
    turn: Option<Box<DelegatedTurn>>,
    /// Whether the store may have ended it.
    is_in_doubt: bool,
}

impl DelegatedUse {
    pub(super) fn new(
        table: &Arc<DelegationTable>,
        key: &DelegationKey,
        turn: Box<DelegatedTurn>,
    ) -> Self {
        Self {
            table: Arc::clone(table),
            key: key.clone(),
            turn: Some(turn),
            is_in_doubt: false,
        }
    }

    /// The store may have ended it: it is left unless it is [renewed](Self::renewed).
    pub(super) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Its numbers, and for how long it may be relied on.
    pub(in crate::affinity) fn numbers_and_term(&self) -> (TurnNumbers, Term) {
        let turn = self.turn.as_ref();
        turn.map(|turn| (turn.numbers, turn.term))
            .unwrap_or_default()
    }

    /// The route of the call: the store notifies this gateway when it changes.
    pub(in crate::affinity) fn route(&self) -> RouteReply {
        RouteReply {
            binding: self.turn.as_ref().map(|turn| turn.binding.clone()),
            worker_lost: None,
            unreported_loss: None,
        }
    }

    /// Asks the store to renew it as a delegation. None if the call does not have the turn.
    pub(in crate::affinity) async fn ask(&mut self) -> Option<EnterReply> {
        let entered = self.turn.as_mut()?.entry.ask(None).await.ok()?;
        entered.turn.is_some().then_some(entered)
    }

    /// The store gave this reply. The turn is the call's own where the store has not delegated it again.
    pub(in crate::affinity) fn renewed(
        mut self,
        entered: &EnterReply,
    ) -> Result<Self, Option<Box<OwnTurn>>> {
        let Some(turn) = &mut self.turn else {
            return Err(None);
        };
        turn.numbers = TurnNumbers::of(entered);
        turn.term = turn.entry.term();
        let binding = usable_binding(&entered.routed, turn.entry.worker());
        match binding.filter(|_| entered.delegated_for.is_some()) {
            Some(binding) => {
                turn.binding.clone_from(binding);
                self.is_in_doubt = false;
                Ok(self)
            }
            None => Err(self.keep()),
        }
    }

    /// Makes it the call's own.
    pub(in crate::affinity) fn keep(mut self) -> Option<Box<OwnTurn>> {
        let turn = self.turn.take()?;
        self.table.keep(&self.key, turn)
    }
}

impl Drop for DelegatedUse {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let left = {
            let delegations = &mut self.table.shard(&self.key).delegations;
            match self.is_in_doubt || self.table.is_closed() {
                true => {
                    delegations.keep(&self.key);
                    Some(turn)
                }
                false => {
                    let term = turn.term;
                    delegations.end(&self.key, turn, term, boot_now())
                }
            }
        };
        if left.is_some() && !self.is_in_doubt {
            metrics::delegation(DelegationEvent::Recalled);
        }
    }
}

impl DelegationTable {
    /// The call that uses the turn keeps it.
    fn keep(
        self: &Arc<Self>,
        key: &DelegationKey,
        turn: Box<DelegatedTurn>,
    ) -> Option<Box<OwnTurn>> {
        let call = {
            let delegations = &mut self.shard(key).delegations;
            let call = delegations.running(key).cloned();
            delegations.keep(key);
            call
        };
        let DelegatedTurn { entry, numbers, .. } = *turn;
        metrics::delegation(DelegationEvent::Kept);
        Some(self.keep_for(&call?, key, entry, numbers))
    }
}
