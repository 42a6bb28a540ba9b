//! UNBIND: drop one binding, or give up a claim.

use super::{active, binding_at};
use crate::context::{Context, Decision, RecordChange};
use crate::names::{Principal, ServerName, Token};
use crate::record::{Phase, Record};
use crate::refusal::{Refusal, Stale};
use crate::view::BindingView;

/// The request of UNBIND.
#[derive(Clone, Debug)]
pub struct UnbindRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// The server of the binding.
    pub server: ServerName,
    /// Its epoch.
    pub epoch: u64,
    /// The attempt that created it: required for a claim, and compared if it is given.
    pub token: Option<Token>,
}

/// Drops the binding and returns it, so that the caller can clean up.
///
/// # Errors
/// `NOSESSION`, `ENDED`, `DENIED`; `STALE` for another epoch or token.
pub fn unbind(
    slot: &mut Option<Record>,
    request: &UnbindRequest,
    context: &Context<'_>,
) -> Result<Decision<BindingView>, Refusal> {
    let record = active(slot, &request.principal, context)?;
    let binding = binding_at(record, &request.server, request.epoch)?;
    let matches = match (&request.token, binding.phase) {
        (Some(token), _) => *token == binding.token,
        (None, Phase::Bound) => true,
        (None, Phase::Claimed { .. }) => false,
    };
    if !matches {
        return Err(Refusal::Stale(Stale::Binding));
    }
    let reply = BindingView::of(&request.server, binding, context);
    record.bindings.remove(&request.server);
    record.lifetime.slide(context.now, None, context.tuning);
    Ok(Decision::new(reply, RecordChange::Record))
}
