//! ROUTE: the hot path. Where do this session's calls to a server go?
//!
//! It comes in two forms: [`route`] over a whole record, and [`route_binding`] over just the parts it reads, for a
//! store that can fetch those alone.

use super::{authorize, require_active};
use crate::codec::BindingHead;
use crate::context::{Context, Decision, RecordChange};
use crate::names::{InstanceName, Principal, Reason, ServerName, WorkerId};
use crate::record::{Binding, Phase, Record, SessionLifetime};
use crate::refusal::Refusal;
use crate::view::{BindingState, BindingView};

/// What ROUTE asks for.
#[derive(Clone, Debug)]
pub struct RouteRequest {
    /// Whose session it must be.
    pub principal: Principal,
    /// Which server is to be called.
    pub server: ServerName,
    /// Who asks.
    pub worker: WorkerId,
}

/// The answer of ROUTE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReply {
    /// Where the calls go; none while the server is unbound.
    pub binding: Option<BindingView>,
    /// Set on the first use after the driver's death.
    pub worker_lost: Option<WorkerLost>,
    /// A loss that the client has still to be told of, while the server is bound.
    pub unreported_loss: Option<UnreportedLoss>,
}

/// The state that a binding had upstream is lost, and no reply has told the client of it yet.
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

/// What ROUTE answers, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteState {
    /// Nobody has bound this server yet.
    Unbound,
    /// There is a binding, in this state.
    Binding(BindingState),
}

impl RouteState {
    /// The word of the contract.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Binding(state) => state.as_str(),
        }
    }
}

/// The worker that drove a binding before is dead, and the caller is the first to use it since. That needs no new
/// epoch, because the binding's state is not in a worker; but it is told once, so that it can be logged and counted.
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
    /// Set where the caller drives the binding from now on: what became of the driver before it.
    pub replaced: Option<ReplacedDriver>,
}

impl UsedBinding {
    /// Whether a caller that knows the binding as it is in use at `epoch`, with itself as the driver, has nothing to learn
    /// from the whole answer: neither its instance nor its upstream session changes within an epoch.
    #[must_use]
    pub fn is_known_at(&self, epoch: Option<u64>, head: &BindingHead<'_>, worker: &str) -> bool {
        epoch == Some(head.epoch)
            && self.state == RouteState::Binding(BindingState::Bound)
            && self.replaced.is_none()
            && head.driver == worker
            && head.owner.is_none()
            && !head.has_unreported_loss
    }
}

/// A driver whose place the caller has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedDriver {
    /// The record was written anyway.
    Alive,
    /// This is the first use after its death.
    Dead,
}

/// Checks principal and state, slides the TTL, and says where calls go.
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

/// ROUTE over the parts it reads, after the caller has compared the principal. The driver is the caller's to replace.
///
/// It is written on the first use after its death, and otherwise only when the record is written anyway: a
/// write on every change of worker would make each call of a load-balanced session a replicated write.
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
                // A late request of a worker that is dead itself must neither swallow the event nor become one itself.
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
