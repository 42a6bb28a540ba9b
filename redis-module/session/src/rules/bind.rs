//! BIND: first bind wins.

use super::active;
use crate::context::{Context, Decision, RecordChange};
use crate::limits::{BINDINGS_MAX, INSTANCES_MAX};
use crate::names::{
    InstanceName, NameError, Principal, Problem, ServerName, Token, UpstreamSession, WorkerId,
};
use crate::placement::place;
use crate::record::{Binding, Phase, Record};
use crate::refusal::{Busy, Refusal};
use crate::time::Millis;
use crate::view::BindingView;

/// The request of BIND.
#[derive(Clone, Debug)]
pub struct BindRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// The server to bind.
    pub server: ServerName,
    /// The calling worker.
    pub worker: WorkerId,
    /// Identifies this attempt.
    pub token: Token,
    /// How long the attempt may take to initialize.
    pub lease: Millis,
    /// The candidates, 1 to 1024.
    pub instances: Vec<InstanceName>,
    /// The upstream session if it exists already: then the binding is bound at once.
    pub upstream_session: Option<UpstreamSession>,
    /// Whether only the caller can drive it.
    pub ownership: Ownership,
}

/// Who may drive a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Any worker: the state is in the upstream.
    Shared,
    /// The worker that holds its connection.
    Owned,
}

impl Ownership {
    pub(super) fn owner(self, worker: &WorkerId) -> Option<WorkerId> {
        match self {
            Self::Shared => None,
            Self::Owned => Some(worker.clone()),
        }
    }
}

/// The reply of BIND: whether this attempt won, and the current binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindReply {
    /// Whether the binding belongs to this attempt.
    pub won: bool,
    /// The current binding.
    pub binding: BindingView,
}

/// Binds the server, or returns its current binding.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`; `LIMIT bindings`; `BUSY` for an owned binding by a draining worker; `ERR` without
/// instances or with too many.
pub fn bind(
    slot: &mut Option<Record>,
    key: &[u8],
    request: &BindRequest,
    context: &Context<'_>,
) -> Result<Decision<BindReply>, Refusal> {
    check_instances(&request.instances)?;
    let record = active(slot, &request.principal, context)?;
    if let Some(binding) = record.bindings.get_mut(&request.server) {
        let renewed = renew(binding, request, context);
        let slid = record.lifetime.slide(context.now, None, context.tuning);
        let reply = BindReply {
            won: binding.token == request.token,
            binding: BindingView::of(&request.server, binding, context),
        };
        let written = match (renewed, slid) {
            (true, _) => RecordChange::Record,
            (false, true) => RecordChange::Lifetime,
            (false, false) => RecordChange::Nothing,
        };
        return Ok(Decision::new(reply, written));
    }
    if record.bindings.len() >= BINDINGS_MAX {
        return Err(Refusal::Limit {
            what: "bindings",
            value: BINDINGS_MAX,
        });
    }
    if request.ownership == Ownership::Owned && context.workers.is_draining(&request.worker) {
        return Err(Refusal::Busy(Busy::Draining));
    }
    let instance = place(key, &request.server, &request.instances, None, context.node)
        .ok_or_else(no_instances)?;
    record.highest_epoch = context.number_after(record.highest_epoch);
    let binding = Binding {
        phase: match request.upstream_session {
            Some(_) => Phase::Bound,
            None => claimed(request.lease, context),
        },
        instance: instance.clone(),
        upstream_session: request.upstream_session.clone(),
        owner: request.ownership.owner(&request.worker),
        driver: request.worker.clone(),
        epoch: record.highest_epoch,
        bound_at: context.now,
        rebinds: 0,
        last_reason: None,
        token: request.token.clone(),
        previous: None,
        unreported_loss: None,
    };
    let reply = BindReply {
        won: true,
        binding: BindingView::of(&request.server, &binding, context),
    };
    record.bindings.insert(request.server.clone(), binding);
    record.lifetime.slide(context.now, None, context.tuning);
    Ok(Decision::new(reply, RecordChange::Record))
}

/// A retry of the attempt that holds the claim renews its lease, or sets the upstream session that it has initialized
/// in the meantime. Returns whether it did.
fn renew(binding: &mut Binding, request: &BindRequest, context: &Context<'_>) -> bool {
    if binding.token != request.token || binding.phase == Phase::Bound {
        return false;
    }
    match &request.upstream_session {
        Some(upstream_session) => {
            binding.phase = Phase::Bound;
            binding.upstream_session = Some(upstream_session.clone());
            binding.previous = None;
        }
        None => renew_claim(binding, request.lease, context),
    }
    true
}

pub(super) fn claimed(lease: Millis, context: &Context<'_>) -> Phase {
    Phase::Claimed {
        lease_until: context.now.plus(lease),
    }
}

/// Renews the lease of a claim. If the wall clock stepped back since the claim began, it begins now.
pub(super) fn renew_claim(binding: &mut Binding, lease: Millis, context: &Context<'_>) {
    binding.bound_at = binding.bound_at.min(context.now);
    binding.phase = claimed(lease, context);
}

pub(super) fn check_instances(instances: &[InstanceName]) -> Result<(), Refusal> {
    if instances.is_empty() || instances.len() > INSTANCES_MAX {
        return Err(no_instances());
    }
    Ok(())
}

pub(super) fn no_instances() -> Refusal {
    Refusal::Argument(NameError {
        what: "INSTANCES",
        problem: Problem::Range(1, INSTANCES_MAX as u64),
    })
}
