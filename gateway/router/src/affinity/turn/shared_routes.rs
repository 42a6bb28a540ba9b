//! Routes of parallel servers, which messages use without asking the store, as long as it would notify this gateway of a
//! change. Where calls have turns, leaving a turn ends these notifications.

use std::sync::Arc;
use std::time::Duration;

use mooring_delivery::{BootTime, RouteBeginning, Term};
use mooring_metrics::{self as metrics, DelegationEvent};
use mooring_session::names::Principal;
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::time::Millis;
use mooring_session::view::BindingView;

use super::delegations::{DelegationTable, usable_binding};
use super::running_call::DelegationKey;
use crate::affinity::boot_clock::boot_now;
use mooring_store::DelegatedRoute;

/// The route of a session to a server.
#[derive(Debug)]
pub(super) struct SharedRoute {
    principal: Principal,
    binding: BindingView,
}

impl SharedRoute {
    fn reply(&self) -> RouteReply {
        RouteReply::known(self.binding.clone())
    }
}

impl DelegationTable {
    /// A message of this principal needs the route.
    fn begin_route(
        &self,
        key: &DelegationKey,
        principal: &Principal,
    ) -> RouteBeginning<Arc<SharedRoute>> {
        if self.lease.is_none() || self.is_closed() {
            return RouteBeginning::Ask;
        }
        let (now, wake_ups) = (boot_now(), self.wake_ups());
        let beginning = self.shard(key).routes.begin(key, now, wake_ups);
        self.ask_for_maintenance();
        match beginning {
            // The store refuses it.
            RouteBeginning::Use(route) if route.principal != *principal => RouteBeginning::Ask,
            RouteBeginning::Use(route) => {
                metrics::delegation(DelegationEvent::RouteUsed);
                RouteBeginning::Use(route)
            }
            beginning => beginning,
        }
    }

    /// How a message gets its route.
    pub(in crate::affinity) fn route(
        &self,
        key: &DelegationKey,
        principal: &Principal,
    ) -> FirstRoute {
        match (self.begin_route(key, principal), self.lease) {
            (RouteBeginning::Use(route), _) => FirstRoute::Known(route.reply()),
            (RouteBeginning::AskDelegation, Some(lease)) => {
                FirstRoute::AskDelegation(lease, boot_now())
            }
            _ => FirstRoute::Ask,
        }
    }

    /// The store has routed a message that asked for a delegation at `asked_at`.
    pub(in crate::affinity) fn note_route(
        &self,
        key: &DelegationKey,
        request: &RouteRequest,
        asked_at: BootTime,
        delegated: &DelegatedRoute,
    ) {
        if let Some(lasting) = delegated.delegated_for
            && let Some(binding) = usable_binding(&delegated.routed, &request.worker)
        {
            let route = SharedRoute {
                principal: request.principal.clone(),
                binding: binding.clone(),
            };
            let term = Term::asked(asked_at, Duration::from_millis(lasting.get()));
            self.shard(key).routes.granted(key, Arc::new(route), term);
        }
    }
}

/// How a message gets its route.
pub(in crate::affinity) enum FirstRoute {
    /// It is this one.
    Known(RouteReply),
    /// By asking the store, also for a delegation with this lease. It is asked for from this moment on.
    AskDelegation(Millis, BootTime),
    /// By asking the store.
    Ask,
}
