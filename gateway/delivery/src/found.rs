//! What a route says: the one decision of every call, and mostly the only one.

use mooring_session::rules::RouteReply;
use mooring_session::view::BindingState;

use crate::facts::{Facts, OnLoss};
use crate::loss::{Loss, LostBinding, StateLoss};
use crate::task::Resolved;

/// What a route says of a session at a server.
pub(crate) enum Found {
    /// A binding that carries calls, and a loss that no result of a tool has reported.
    Ready(Resolved),
    /// A lost binding.
    Lost(LostBinding),
    /// The session has not used the server.
    Unbound,
    /// Another attempt makes the binding.
    Claimed,
}

/// Reads the binding from a route. Only the result of a tool reports an earlier loss.
pub(crate) fn look_up(routed: RouteReply, on_loss: OnLoss, facts: &Facts<'_>) -> Found {
    let Some(binding) = routed.binding else {
        return Found::Unbound;
    };
    match binding.state {
        BindingState::Claimed => Found::Claimed,
        BindingState::Orphaned => {
            Found::Lost(LostBinding::new(&binding, Loss::of_orphan(&binding)))
        }
        BindingState::Bound if !facts.instances.contains(&binding.instance) => {
            Found::Lost(LostBinding::new(&binding, Loss::InstanceRemoved))
        }
        BindingState::Bound => {
            let unreported =
                (routed.unreported_loss).filter(|_| on_loss == OnLoss::RecoverAndReport);
            let state_loss = unreported.map(|loss| StateLoss::recorded(loss, &binding));
            Found::Ready(Resolved {
                binding,
                state_loss,
            })
        }
    }
}
