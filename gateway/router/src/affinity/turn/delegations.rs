//! The delegated turns of this process, and its [shared routes](super::shared_routes): [`mooring_delivery::Delegations`] and
//! [`SharedRoutes`] for all of its threads.
//!
//! A call [begins](DelegationTable::begin) here and [gives back](DelegatedUse) what it used. The task of the
//! [wake-ups](crate::affinity::wake_ups) keeps the table true: it notes that wake-ups arrive, recalls what the store wants back, and
//! sweeps out what is unused. Invariants: a delegated turn is idle here, with one call, or being left; dropping it leaves it;
//! a dropped call leaves nothing in use; no lock is held while a turn is left.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use mooring_delivery::{Delegations, SharedRoutes, Term, TurnBeginning, WakeUps};
use mooring_metrics::{self as metrics, DelegationEvent};
use mooring_session::limits::DELEGATION_TTL_LEASES;
use mooring_session::names::{Principal, WorkerId};
use mooring_session::rules::RouteReply;
use mooring_session::time::Millis;
use mooring_session::view::{BindingState, BindingView};
use tokio::sync::Notify;

use super::delegated_use::DelegatedUse;
use super::keeper::{OwnTurn, TurnNumbers};
use super::kept_calls::KeptCalls;
use super::queue_entry::QueueEntry;
use super::running_call::{DelegationKey, RunningCall};
use super::shared_routes::SharedRoute;
use crate::affinity::boot_clock::{AtomicBootTime, boot_now};
use crate::lock_stripes::LockStripes;
use mooring_store::EnterReply;

/// A turn that the store has delegated to this gateway, with what its calls need of the store.
#[derive(Debug)]
pub(in crate::affinity) struct DelegatedTurn {
    pub(in crate::affinity) entry: QueueEntry,
    pub(in crate::affinity) numbers: TurnNumbers,
    pub(in crate::affinity) term: Term,
    pub(in crate::affinity) binding: BindingView,
}

/// How a call gets its turn.
pub(in crate::affinity) enum CallBeginning {
    /// By asking the store for a turn.
    AskTurn,
    /// By asking the store for a turn, and for a delegation with this lease.
    AskDelegation(Millis),
    /// It has this one.
    Use(DelegatedUse),
    /// It has this one if the store renews it.
    Renew(DelegatedUse),
}

/// The delegated turns of this process.
#[derive(Debug)]
pub(in crate::affinity) struct DelegationTable {
    /// The lease to ask for. None if turns are not to be delegated.
    pub(super) lease: Option<Millis>,
    pub(super) shards: LockStripes<Shard>,
    pub(super) kept: Arc<KeptCalls>,
    /// When the wake-ups were last seen to arrive; none if they do not.
    pub(super) wake_ups_seen: AtomicBootTime,
    pub(super) is_closed: AtomicBool,
    /// Whether a task maintains it. It is not needed while the table is empty.
    pub(super) is_maintained: AtomicBool,
    pub(super) is_filled: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) delegations: Delegations<DelegationKey, Box<DelegatedTurn>, RunningCall>,
    pub(super) routes: SharedRoutes<DelegationKey, Arc<SharedRoute>>,
}

impl DelegationTable {
    /// An empty table. `lease` is what to ask the store for; zero turns delegations off. So does a TTL of sessions that is
    /// short against it.
    pub(in crate::affinity) fn new(lease: Millis, session_ttl: Millis) -> Arc<Self> {
        let is_on = lease > Millis::new(0) && session_ttl >= lease.times(DELEGATION_TTL_LEASES);
        Arc::new(Self {
            lease: is_on.then_some(lease),
            shards: LockStripes::default(),
            kept: Arc::default(),
            wake_ups_seen: AtomicBootTime::default(),
            is_closed: AtomicBool::default(),
            is_maintained: AtomicBool::default(),
            is_filled: Notify::default(),
        })
    }

    /// A call of this principal begins.
    pub(in crate::affinity) fn begin(
        self: &Arc<Self>,
        key: &DelegationKey,
        principal: &Principal,
        call: &RunningCall,
    ) -> CallBeginning {
        let Some(lease) = self.lease else {
            return CallBeginning::AskTurn;
        };
        if self.is_closed() {
            return CallBeginning::AskTurn;
        }
        let (now, wake_ups) = (boot_now(), self.wake_ups());
        let beginning = self.shard(key).delegations.begin(key, call, now, wake_ups);
        self.ask_for_maintenance();
        let (turn, is_sure) = match beginning {
            TurnBeginning::AskTurn => return CallBeginning::AskTurn,
            TurnBeginning::AskDelegation => return CallBeginning::AskDelegation(lease),
            TurnBeginning::Use(turn) => (turn, true),
            TurnBeginning::Renew(turn) => (turn, false),
        };
        let is_own = turn.entry.principal() == principal;
        let mut used = DelegatedUse::new(self, key, turn);
        if !is_own {
            // The store refuses it.
            return CallBeginning::AskTurn;
        }
        match is_sure {
            true => {
                metrics::delegation(DelegationEvent::Used);
                CallBeginning::Use(used)
            }
            false => {
                used.doubt();
                CallBeginning::Renew(used)
            }
        }
    }

    /// The store has delegated the turn of this entry to this gateway. The turn is the call's own where it cannot be used
    /// by others.
    pub(in crate::affinity) fn grant(
        self: &Arc<Self>,
        key: &DelegationKey,
        call: &RunningCall,
        entry: QueueEntry,
        entered: &EnterReply,
    ) -> Result<DelegatedUse, Box<OwnTurn>> {
        let numbers = TurnNumbers::of(entered);
        let binding = usable_binding(&entered.routed, entry.worker());
        let is_open = binding.is_some() && !self.is_closed();
        let Some(binding) =
            binding.filter(|_| is_open && self.shard(key).delegations.granted(key, call))
        else {
            // The store has to learn that the turn is one call's.
            call.keep_turn();
            return Err(self.keep_for(call, key, entry, numbers));
        };
        self.ask_for_maintenance();
        if !self.wake_ups().are_fresh(boot_now()) {
            // They broke since it was asked for, so the store may end it soon.
            call.keep_turn();
        }
        metrics::delegation(DelegationEvent::Granted);
        let turn = DelegatedTurn {
            term: entry.term(),
            entry,
            numbers,
            binding: binding.clone(),
        };
        Ok(DelegatedUse::new(self, key, Box::new(turn)))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The turn becomes the call's own.
    pub(super) fn keep_for(
        self: &Arc<Self>,
        call: &RunningCall,
        key: &DelegationKey,
        mut entry: QueueEntry,
        numbers: TurnNumbers,
    ) -> Box<OwnTurn> {
        // Without a ticket of its own it could not resume.
        entry.ask_for_call(call.ticket(key).ok());
        Box::new(OwnTurn {
            entry,
            numbers,
            kept: Some(self.kept.insert(key, call)),
        })
    }

    pub(super) fn shard(&self, key: &DelegationKey) -> MutexGuard<'_, Shard> {
        self.shards.part_of(key)
    }

    pub(super) fn wake_ups(&self) -> WakeUps {
        self.wake_ups_seen
            .load()
            .map_or(WakeUps::Broken, WakeUps::SeenAt)
    }
}

/// The binding of a route that stays as it is until the store notifies this worker.
pub(super) fn usable_binding<'a>(
    routed: &'a RouteReply,
    worker: &WorkerId,
) -> Option<&'a BindingView> {
    let has_news = routed.worker_lost.is_some() || routed.unreported_loss.is_some();
    let is_usable = |binding: &&BindingView| {
        let owner = binding.owner.as_ref();
        !has_news
            && binding.state == BindingState::Bound
            && owner.is_none_or(|owner| owner.worker == *worker && owner.alive)
    };
    routed.binding.as_ref().filter(is_usable)
}
