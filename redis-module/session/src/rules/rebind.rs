//! REBIND: compare-and-set on the epoch. Of many callers that see the same loss, exactly one moves the binding.

use super::active;
use super::bind::{Ownership, check_instances, claimed, no_instances, renew_claim};
use crate::context::{Context, Decision, RecordChange};
use crate::names::{InstanceName, Principal, Reason, ServerName, Token, UpstreamSession, WorkerId};
use crate::placement::place;
use crate::record::{Binding, Phase, Record};
use crate::refusal::{Busy, Refusal, Stale};
use crate::time::Millis;
use crate::view::BindingView;

/// The request of REBIND.
#[derive(Clone, Debug)]
pub struct RebindRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// The server whose binding to move.
    pub server: ServerName,
    /// The epoch that the caller saw fail.
    pub epoch: u64,
    /// The calling worker.
    pub worker: WorkerId,
    /// Identifies this attempt.
    pub token: Token,
    /// How long the attempt may take to initialize.
    pub lease: Millis,
    /// The candidates, 1 to 1024.
    pub instances: Vec<InstanceName>,
    /// An instance not to choose, unless it is the only one.
    pub avoid: Option<InstanceName>,
    /// The reason, for people.
    pub reason: Option<Reason>,
    /// The upstream session if it exists already: then the binding is bound at once.
    pub upstream_session: Option<UpstreamSession>,
    /// Whether only the caller can drive the binding.
    pub ownership: Ownership,
    /// Which reply reports the loss to the client.
    pub report: LossReport,
}

/// Which reply reports to the client that the state of a binding was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReport {
    /// That to the request that met the loss, by the caller of REBIND.
    ByCaller,
    /// That to the next call: the caller has no reply in which to report it.
    ByNextCall,
}

/// The reply of REBIND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebindReply {
    /// Whether the claim belongs to this attempt. If not, the caller uses the binding that another attempt created.
    pub won: bool,
    /// The upstream session left behind, for the winner to delete.
    pub previous: Option<UpstreamSession>,
    /// The current binding.
    pub binding: BindingView,
}

/// The result of comparing epoch, token and lease.
enum Comparison {
    /// The caller moves the binding.
    Move,
    /// The caller has moved it already and retries, because the reply was lost.
    Again,
    /// Another attempt has moved it, or is moving it.
    Adopt,
}

/// Moves the binding to a new claim, or, if the request has its upstream session, to a bound binding at once.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`; `STALE` if the server is not bound at all; `OWNED` if the owner is alive and not the
/// caller, unless it is draining and no turn at the server is held; `BUSY` for an owned binding by a draining worker;
/// `ERR` without instances or with too many.
pub fn rebind(
    slot: &mut Option<Record>,
    key: &[u8],
    request: &RebindRequest,
    context: &Context<'_>,
) -> Result<Decision<RebindReply>, Refusal> {
    check_instances(&request.instances)?;
    let record = active(slot, &request.principal, context)?;
    let binding = record
        .bindings
        .get_mut(&request.server)
        .ok_or(Refusal::Stale(Stale::Binding))?;
    let written = match compare(binding, request, context) {
        Comparison::Move => {
            check_owner(binding, request, context)?;
            if request.ownership == Ownership::Owned && context.workers.is_draining(&request.worker)
            {
                return Err(Refusal::Busy(Busy::Draining));
            }
            let instance = choose(key, binding, request, context)?;
            record.highest_epoch = context.number_after(record.highest_epoch);
            take_over(binding, instance, record.highest_epoch, request, context);
            RecordChange::Record
        }
        Comparison::Again if binding.phase != Phase::Bound => {
            retry(binding, request, context);
            RecordChange::Record
        }
        Comparison::Again | Comparison::Adopt => RecordChange::Nothing,
    };
    let won = binding.token == request.token;
    let reply = RebindReply {
        won,
        previous: binding.previous.clone().filter(|_| won),
        binding: BindingView::of(&request.server, binding, context),
    };
    let slid = record.lifetime.slide(context.now, None, context.tuning);
    let written = if slid {
        written.max(RecordChange::Lifetime)
    } else {
        written
    };
    Ok(Decision::new(reply, written))
}

fn compare(binding: &Binding, request: &RebindRequest, context: &Context<'_>) -> Comparison {
    let is_own = binding.token == request.token;
    if binding.epoch == request.epoch {
        // Only the claim's holder may move it to another instance before the lease lapses.
        if binding.is_claim_live(context.now) && !is_own {
            Comparison::Adopt
        } else {
            Comparison::Move
        }
    } else if is_own {
        Comparison::Again
    } else {
        Comparison::Adopt
    }
}

/// Checks that the binding may be taken from its owner: a draining owner gives it up, but not during a call.
fn check_owner(
    binding: &Binding,
    request: &RebindRequest,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let Some(owner) = &binding.owner else {
        return Ok(());
    };
    if *owner == request.worker || !context.workers.is_alive(owner) {
        return Ok(());
    }
    let is_released =
        context.workers.is_draining(owner) && !context.node.holds_turn(Some(&request.server));
    if is_released {
        Ok(())
    } else {
        Err(Refusal::Owned(owner.clone()))
    }
}

/// Keeps the current instance if possible: the death of a worker does not move a session from a healthy instance.
fn choose(
    key: &[u8],
    binding: &Binding,
    request: &RebindRequest,
    context: &Context<'_>,
) -> Result<InstanceName, Refusal> {
    let avoid = request.avoid.as_ref();
    if avoid != Some(&binding.instance) && request.instances.contains(&binding.instance) {
        return Ok(binding.instance.clone());
    }
    place(
        key,
        &request.server,
        &request.instances,
        avoid,
        context.node,
    )
    .cloned()
    .ok_or_else(no_instances)
}

fn take_over(
    binding: &mut Binding,
    instance: InstanceName,
    epoch: u64,
    request: &RebindRequest,
    context: &Context<'_>,
) {
    let unreported_loss = unreported_loss(binding, request);
    // A claim that was never confirmed has no upstream session of its own: the one before it still has to be deleted.
    let left_behind = binding.upstream_session.take().or(binding.previous.take());
    *binding = Binding {
        phase: match request.upstream_session {
            Some(_) => Phase::Bound,
            None => claimed(request.lease, context),
        },
        instance,
        upstream_session: request.upstream_session.clone(),
        owner: request.ownership.owner(&request.worker),
        driver: request.worker.clone(),
        epoch,
        bound_at: context.now,
        rebinds: binding.rebinds.saturating_add(1),
        last_reason: request.reason.clone(),
        token: request.token.clone(),
        // If the new epoch keeps the same upstream session, it must not be deleted as the previous one.
        previous: left_behind.filter(|left| Some(left) != request.upstream_session.as_ref()),
        unreported_loss,
    };
}

/// The loss to report to the client once the binding is moved. Consecutive losses count as one, of the instance that
/// was lost first. A claim that never had state has none to lose.
fn unreported_loss(binding: &mut Binding, request: &RebindRequest) -> Option<InstanceName> {
    let earlier = binding.unreported_loss.take();
    let moves_own_claim = binding.token == request.token;
    let had_state = binding.phase == Phase::Bound || binding.rebinds > 0;
    match request.report {
        _ if moves_own_claim => earlier,
        LossReport::ByCaller => None,
        LossReport::ByNextCall if had_state => {
            Some(earlier.unwrap_or_else(|| binding.instance.clone()))
        }
        LossReport::ByNextCall => None,
    }
}

/// Renews the lease of the caller's claim, or sets the upstream session that it has initialized in the meantime.
fn retry(binding: &mut Binding, request: &RebindRequest, context: &Context<'_>) {
    match &request.upstream_session {
        Some(upstream_session) => {
            binding.phase = Phase::Bound;
            binding.upstream_session = Some(upstream_session.clone());
            binding
                .previous
                .take_if(|previous| previous == upstream_session);
        }
        None => renew_claim(binding, request.lease, context),
    }
}
