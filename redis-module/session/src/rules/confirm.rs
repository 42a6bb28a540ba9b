//! CONFIRM: the claim's holder reports that the binding is initialized.

use super::{active, binding_at};
use crate::context::{Context, Decision, RecordChange};
use crate::names::{Principal, ServerName, Token, UpstreamSession};
use crate::record::{Phase, Record};
use crate::refusal::{Refusal, Stale};
use crate::view::BindingView;

/// The request of CONFIRM.
#[derive(Clone, Debug)]
pub struct ConfirmRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// The server of the claim.
    pub server: ServerName,
    /// The claim's epoch.
    pub epoch: u64,
    /// The attempt that holds it.
    pub token: Token,
    /// The session id that the upstream assigned, if any.
    pub upstream_session: Option<UpstreamSession>,
}

/// Turns the claim into a bound binding. The lease may have lapsed in the meantime: the confirmation is valid until
/// another attempt takes the claim over. Confirming twice is no error.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`; `STALE` if the claim was lost: the caller deletes the upstream session that it
/// created.
pub fn confirm(
    slot: &mut Option<Record>,
    request: &ConfirmRequest,
    context: &Context<'_>,
) -> Result<Decision<BindingView>, Refusal> {
    let record = active(slot, &request.principal, context)?;
    let binding = binding_at(record, &request.server, request.epoch)?;
    if binding.token != request.token {
        return Err(Refusal::Stale(Stale::Binding));
    }
    let mut written = RecordChange::Record;
    match binding.phase {
        Phase::Claimed { .. } => {
            binding.phase = Phase::Bound;
            binding
                .upstream_session
                .clone_from(&request.upstream_session);
            binding.previous = None;
        }
        Phase::Bound if binding.upstream_session == request.upstream_session => {
            written = RecordChange::Nothing;
        }
        Phase::Bound => return Err(Refusal::Stale(Stale::Binding)),
    }
    let reply = BindingView::of(&request.server, binding, context);
    if record.lifetime.slide(context.now, None, context.tuning) && written == RecordChange::Nothing
    {
        written = RecordChange::Lifetime;
    }
    Ok(Decision::new(reply, written))
}
