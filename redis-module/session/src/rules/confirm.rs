//! CONFIRM: the claim's holder says that the binding is initialized.

use super::{active, binding_at};
use crate::context::{Context, Decision, RecordChange};
use crate::names::{Principal, ServerName, Token, UpstreamSession};
use crate::record::{Phase, Record};
use crate::refusal::{Refusal, Stale};
use crate::view::BindingView;

/// What CONFIRM asks for.
#[derive(Clone, Debug)]
pub struct ConfirmRequest {
    /// Whose session it must be.
    pub principal: Principal,
    /// Which server's claim.
    pub server: ServerName,
    /// The claim's epoch.
    pub epoch: u64,
    /// The attempt that holds it.
    pub token: Token,
    /// The session id the upstream gave; none where it gave none.
    pub upstream_session: Option<UpstreamSession>,
}

/// Turns the claim into a binding. The lease may have lapsed meanwhile: as long as nobody took the claim over, its
/// holder is right. Saying the same twice is no error.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`; `STALE` where the claim was lost: the caller cleans up the upstream session it made.
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
