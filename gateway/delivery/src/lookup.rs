//! What a route says: the one decision of every call, and mostly the only one.

use mooring_session::rules::RouteReply;
use mooring_session::view::BindingState;

use crate::facts::{Facts, OnLoss};
use crate::loss::{Loss, LostBinding, StateLoss};
use crate::task::ResolvedBinding;

/// What a route says of a session at a server.
pub(crate) enum BindingLookup {
    /// A binding that carries calls, and a loss that no result of a tool has reported.
    Ready(ResolvedBinding),
    /// A lost binding.
    Lost(LostBinding),
    /// The session has not used the server.
    Unbound,
    /// Another attempt makes the binding.
    Claimed,
}

/// Reads the binding from a route. Only the result of a tool reports an earlier loss.
pub(crate) fn look_up(routed: RouteReply, on_loss: OnLoss, facts: &Facts<'_>) -> BindingLookup {
    let Some(binding) = routed.binding else {
        return BindingLookup::Unbound;
    };
    match binding.state {
        BindingState::Claimed => BindingLookup::Claimed,
        BindingState::Orphaned => {
            BindingLookup::Lost(LostBinding::new(&binding, Loss::of_orphan(&binding)))
        }
        BindingState::Bound if !facts.instances.contains(&binding.instance) => {
            BindingLookup::Lost(LostBinding::new(&binding, Loss::InstanceRemoved))
        }
        BindingState::Bound => {
            let unreported =
                (routed.unreported_loss).filter(|_| on_loss == OnLoss::RecoverAndReport);
            let state_loss = unreported.map(|loss| StateLoss::recorded(loss, &binding));
            BindingLookup::Ready(ResolvedBinding {
                binding,
                state_loss,
            })
        }
    }
}
