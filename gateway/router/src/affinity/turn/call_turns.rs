//! The turn of a call: from the [delegations](super::delegations) of this gateway, or from the store.

use std::time::Duration;

use tokio::time::Instant;

use super::delegated_use::DelegatedUse;
use super::delegations::CallBeginning;
use super::held_turns::{TurnOfCall, TurnTaker};
use super::keeper::OwnTurn;
use super::queue_entry::QueueEntry;
use super::running_call::DelegationKey;
use super::{Session, SessionRouter, Turn, TurnError};
use mooring_metrics::{self as metrics, DelegationEvent};
use mooring_session::names::ServerName;
use mooring_session::rules::RouteReply;
use mooring_session::time::Millis;
use mooring_store::EnterReply;

impl SessionRouter {
    /// Waits up to `wait_max` for the turn of this call, and returns the route too.
    pub(in crate::affinity) async fn take_turn_of(
        &self,
        taker: &TurnTaker,
        session: &Session,
        server: &ServerName,
        wait_max: Duration,
    ) -> Result<(Turn, RouteReply), TurnError> {
        let key = (session.key.clone(), server.clone());
        let principal = &session.principal;
        let lease = match self.delegations().begin(&key, principal, &taker.call) {
            CallBeginning::Use(used) => {
                let route = used.route();
                return Ok((Turn::hold(taker, TurnOfCall::Delegated(used)), route));
            }
            CallBeginning::Renew(used) => match Box::pin(renew(taker, used)).await {
                Some(taken) => return Ok(taken),
                None => None,
            },
            CallBeginning::AskDelegation(lease) => Some(lease),
            CallBeginning::AskTurn => None,
        };
        let ticket = taker.call.ticket(&key)?;
        let entry = self.entry(&key.0, principal, &key.1, ticket, Some(wait_max));
        let (turn, entered) = match lease {
            Some(lease) => {
                Box::pin(self.take_delegation(taker, &key, entry, lease, wait_max)).await
            }
            None => entry.take(taker, wait_max).await,
        }?;
        Ok((turn, entered.routed))
    }

    /// Waits for the turn, which the store delegates if it can.
    async fn take_delegation(
        &self,
        taker: &TurnTaker,
        key: &DelegationKey,
        mut entry: QueueEntry,
        lease: Millis,
        wait_max: Duration,
    ) -> Result<(Turn, EnterReply), TurnError> {
        entry.ask_for_delegation(lease);
        let entered = entry.wait(Instant::now().checked_add(wait_max)).await?;
        let turn = match entered.delegated_for {
            Some(_) => match self.delegations().grant(key, &taker.call, entry, &entered) {
                Ok(used) => TurnOfCall::Delegated(used),
                Err(own) => TurnOfCall::Own(own),
            },
            None => {
                entry.ask_for_call(None);
                TurnOfCall::Own(OwnTurn::new(entry, &entered))
            }
        };
        Ok((Turn::hold(taker, turn), entered))
    }
}

/// Renews a delegated turn for this call. None if it is left and the call has to ask for its own.
async fn renew(taker: &TurnTaker, mut used: DelegatedUse) -> Option<(Turn, RouteReply)> {
    // The turn is left if it is dropped before the store has renewed it.
    let Some(entered) = used.ask().await else {
        metrics::delegation(DelegationEvent::Lapsed);
        return None;
    };
    let turn = match used.renewed(&entered) {
        Ok(used) => {
            metrics::delegation(DelegationEvent::Used);
            TurnOfCall::Delegated(used)
        }
        Err(own) => TurnOfCall::Own(own?),
    };
    Some((Turn::hold(taker, turn), entered.routed))
}
