//! Routes of parallel servers, which messages use without asking the store, as long as it would notify this gateway of a
//! change. Where calls have turns, leaving a turn ends these notifications.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mooring_delivery::{RouteBeginning, Term};
use mooring_metrics::{self as metrics, DelegationEvent};
use mooring_session::names::Principal;
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::view::BindingView;

use super::{DelegationKey, DelegationTable, usable_binding};
use crate::affinity::boot_clock::boot_now;
use crate::affinity::{Session, SessionRouter};
use mooring_store::StoreError;

/// The route of a session to a server.
#[derive(Debug)]
pub(super) struct SharedRoute {
    principal: Principal,
    binding: BindingView,
}

impl SharedRoute {
    fn reply(&self) -> RouteReply {
        RouteReply {
            binding: Some(self.binding.clone()),
            worker_lost: None,
            unreported_loss: None,
        }
    }
}

impl SessionRouter {
    /// The route of a message: one that is known to be true, or else the store's. Not for a message whose former attempt
    /// failed.
    pub(crate) async fn first_route(
        &self,
        session: &Session,
        request: &RouteRequest,
    ) -> Result<RouteReply, StoreError> {
        let table = self.delegations();
        let key = (session.key.clone(), request.server.clone());
        let lease = match table.begin_route(&key, &request.principal) {
            RouteBeginning::Use(route) => return Ok(route.reply()),
            RouteBeginning::Ask => None,
            RouteBeginning::AskDelegation => table.lease,
        };
        let Some(lease) = lease else {
            return self.route(session, request).await;
        };
        let asked_at = boot_now();
        let delegated = self.store().delegate_route(&key.0, request, lease).await?;
        self.record_takeover(session, &request.server, &delegated.routed);
        if let Some(lasting) = delegated.delegated_for
            && let Some(binding) = usable_binding(&delegated.routed, &request.worker)
        {
            let route = SharedRoute {
                principal: request.principal.clone(),
                binding: binding.clone(),
            };
            let term = Term::asked(asked_at, Duration::from_millis(lasting.get()));
            (table.shard(&key).routes).granted(&key, Arc::new(route), term);
        }
        Ok(delegated.routed)
    }
}

impl DelegationTable {
    fn begin_route(
        &self,
        key: &DelegationKey,
        principal: &Principal,
    ) -> RouteBeginning<Arc<SharedRoute>> {
        if self.lease.is_none() || self.is_closed.load(Ordering::Acquire) {
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
}
