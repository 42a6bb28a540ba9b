//! ROUTE: where a session's calls to a server go. This is the hot path.
//!
//! It has two forms: [`route`] takes a whole record, and [`route_binding`] only the parts that it reads, for a store
//! that can fetch those alone.

use super::{authorize, require_active};
use crate::codec::BindingHead;
use crate::context::{Context, Decision, RecordChange};
use crate::limits::DELEGATION_TTL_LEASES;
use crate::names::{InstanceName, Principal, Reason, ServerName, WorkerId};
use crate::record::{Binding, Phase, Record, SessionLifetime};
use crate::refusal::Refusal;
use crate::time::Millis;
use crate::view::{BindingState, BindingView};

/// The request of ROUTE.
#[derive(Clone, Debug)]
pub struct RouteRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// The server to be called.
    pub server: ServerName,
    /// The calling worker.
    pub worker: WorkerId,
}

/// The reply of ROUTE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReply {
    /// Where the calls go; `None` while the server is unbound.
    pub binding: Option<BindingView>,
    /// Set on the first use after the driver's death.
    pub worker_lost: Option<WorkerLost>,
    /// A loss that is still to be reported to the client, while the server is bound.
    pub unreported_loss: Option<UnreportedLoss>,
}

impl RouteReply {
    /// The reply for a binding of which there is no news.
    #[must_use]
    pub const fn known(binding: BindingView) -> Self {
        Self {
            binding: Some(binding),
            worker_lost: None,
            unreported_loss: None,
        }
    }
}

/// The upstream state of a binding was lost, and no reply has reported that to the client yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreportedLoss {
    /// The instance that was lost.
    pub instance: InstanceName,
    /// Why the binding was moved.
    pub reason: Option<Reason>,
}

impl UnreportedLoss {
    fn of(binding: &Binding) -> Option<Self> {
        let instance = binding.unreported_loss.clone()?;
        (binding.phase == Phase::Bound).then(|| Self {
            instance,
            reason: binding.last_reason.clone(),
        })
    }
}

/// The state in the reply of ROUTE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteState {
    /// The server is not bound.
    Unbound,
    /// There is a binding, in this state.
    Binding(BindingState),
}

impl RouteState {
    /// The word in replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Binding(state) => state.as_str(),
        }
    }
}

/// The previous driver of a binding is dead, and the caller is the first to use the binding since. That needs no new
/// epoch, because the binding's state is not in a worker. It is reported once, to be logged and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLost {
    /// The dead worker.
    pub worker: WorkerId,
}

/// What [`route_binding`] found of the binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedBinding {
    /// `unbound`, `claimed`, `bound` or `orphaned`.
    pub state: RouteState,
    /// Set if the caller is the new driver of the binding: the state of the previous driver.
    pub replaced: Option<ReplacedDriver>,
}

impl UsedBinding {
    /// Whether a caller that knows the binding at `epoch`, bound and with itself as the driver, would learn nothing
    /// from the whole reply: neither the instance nor the upstream session changes within an epoch.
    #[must_use]
    pub fn is_known_at(&self, epoch: Option<u64>, head: &BindingHead<'_>, worker: &str) -> bool {
        epoch == Some(head.epoch)
            && head.owner.is_none()
            && head.driver == worker
            && self.has_no_news(head)
    }

    /// Whether the worker may call the instance for `lease` without asking, as long as it is notified of changes. The
    /// session must not expire in that time.
    #[must_use]
    pub fn may_be_delegated(
        &self,
        head: &BindingHead<'_>,
        worker: &str,
        session_ttl: Millis,
        lease: Millis,
    ) -> bool {
        head.owner.is_none_or(|owner| owner == worker)
            && self.has_no_news(head)
            && session_ttl >= lease.times(DELEGATION_TTL_LEASES)
    }

    /// Whether the binding is bound, and there is nothing to report of it.
    fn has_no_news(&self, head: &BindingHead<'_>) -> bool {
        self.state == RouteState::Binding(BindingState::Bound)
            && self.replaced.is_none()
            && !head.has_unreported_loss
    }
}

/// The state of a driver that the caller has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedDriver {
    /// It is alive: the caller replaced it because the record was written anyway.
    Alive,
    /// It is dead: this is the first use since.
    Dead,
}

/// Checks principal and state, slides the TTL, and returns where calls go.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`.
pub fn route(
    slot: &mut Option<Record>,
    request: &RouteRequest,
    context: &Context<'_>,
) -> Result<Decision<RouteReply>, Refusal> {
    let record = slot.as_mut().ok_or(Refusal::NoSession)?;
    authorize(&record.principal, &request.principal)?;
    let found = record.bindings.get(&request.server).map(BindingHead::of);
    let used = route_binding(
        &mut record.lifetime,
        found.as_ref(),
        &request.worker,
        context,
    )?;
    let mut worker_lost = None;
    if let Some(replaced) = used.reply.replaced
        && let Some(binding) = record.bindings.get_mut(&request.server)
    {
        let worker = std::mem::replace(&mut binding.driver, request.worker.clone());
        worker_lost = (replaced == ReplacedDriver::Dead).then_some(WorkerLost { worker });
    }
    let reply = RouteReply {
        binding: record
            .bindings
            .get(&request.server)
            .map(|binding| BindingView::of(&request.server, binding, context)),
        worker_lost,
        unreported_loss: (record.bindings.get(&request.server)).and_then(UnreportedLoss::of),
    };
    Ok(Decision::new(reply, used.written))
}

/// ROUTE over the parts it reads, after the caller has compared the principal. The caller has to replace the driver.
///
/// A new driver is written on the first use after the death of the previous one, and otherwise only if the record is
/// written anyway: a write on every change of worker would make each call of a load-balanced session a replicated
/// write.
///
/// # Errors
/// `NOSESSION`, `ENDED`.
pub fn route_binding(
    lifetime: &mut SessionLifetime,
    binding: Option<&BindingHead<'_>>,
    worker: &str,
    context: &Context<'_>,
) -> Result<Decision<UsedBinding>, Refusal> {
    require_active(lifetime, context)?;
    let slid = lifetime.slide(context.now, None, context.tuning);
    let mut written = if slid {
        RecordChange::Lifetime
    } else {
        RecordChange::Nothing
    };
    let mut replaced = None;
    let state = match binding {
        None => RouteState::Unbound,
        Some(binding) => {
            let is_shared = binding.owner.is_none() && binding.phase == Phase::Bound;
            if is_shared && binding.driver != worker {
                let is_dead = !context.workers.is_alive(binding.driver);
                // A late request of a worker that is itself dead must neither hide the loss nor make that worker the
                // driver.
                if (is_dead || slid) && context.workers.is_alive(worker) {
                    written = RecordChange::Record;
                    replaced = Some(match is_dead {
                        true => ReplacedDriver::Dead,
                        false => ReplacedDriver::Alive,
                    });
                }
            }
            let (phase, bound_at, owner) = (binding.phase, binding.bound_at, binding.owner);
            RouteState::Binding(BindingState::of(phase, bound_at, owner, context))
        }
    };
    Ok(Decision::new(UsedBinding { state, replaced }, written))
}
