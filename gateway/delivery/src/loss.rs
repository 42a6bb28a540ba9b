//! Losses: how a binding was lost, and what is reported to the client.

use std::borrow::Cow;

use mooring_session::names::{InstanceName, Reason};
use mooring_session::rules::UnreportedLoss;
use mooring_session::view::{BindingView, OwnerView};

use crate::facts::Facts;

/// How a binding was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The instance refuses connections.
    InstanceRefuses,
    /// Connects to the instance time out: its host may have vanished.
    InstanceUnreachable,
    /// The instance answers and does not know the session.
    SessionUnknown,
    /// The instance is no longer configured.
    InstanceRemoved,
    /// The attempt to initialize it did not finish.
    ClaimLapsed,
    /// The gateway that owned its connection is dead.
    OwnerDead,
    /// The gateway that owned its connection has stopped in order.
    OwnerStopped,
    /// The gateway that owned its connection drains, and has given it up.
    OwnerDrained,
    /// An operator has moved it.
    MovedByOperator,
    /// Its owned connection has ended: the server's process exited, or its stream broke.
    ConnectionEnded,
}

impl Loss {
    /// The text in logs, records and notices to clients.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InstanceRefuses => "upstream instance refuses connections",
            Self::InstanceUnreachable => "upstream instance cannot be reached",
            Self::SessionUnknown => "upstream session unknown to its instance",
            Self::InstanceRemoved => "upstream instance not configured any more",
            Self::ClaimLapsed => "initialization not finished",
            Self::OwnerDead => "the worker that held the connection is dead",
            Self::OwnerStopped => "the worker that held the connection was stopped",
            Self::OwnerDrained => "the worker that held the connection was drained",
            Self::MovedByOperator => "moved by an operator",
            Self::ConnectionEnded => "the connection to the server ended",
        }
    }

    /// Why a binding is orphaned: its owner is dead, has given it up, or the attempt that claimed it has ended.
    pub(crate) fn of_orphan(binding: &BindingView) -> Self {
        let was_given_up = |reason: &Reason| reason.as_str() == Self::OwnerDrained.as_str();
        match &binding.owner {
            Some(owner) if !owner.alive => Self::OwnerDead,
            None if binding.last_reason.as_ref().is_some_and(was_given_up) => Self::OwnerDrained,
            _ => Self::ClaimLapsed,
        }
    }

    /// The loss as REBIND takes it.
    #[must_use]
    pub fn reason(self) -> Option<Reason> {
        Reason::parse(self.as_str().as_bytes()).ok()
    }

    /// Whether another instance should be preferred.
    pub(crate) const fn avoids_the_instance(self) -> bool {
        matches!(
            self,
            Self::InstanceRefuses | Self::InstanceUnreachable | Self::MovedByOperator
        )
    }
}

/// A binding that was lost.
#[derive(Clone, Debug)]
pub struct LostBinding {
    /// Its instance.
    pub instance: InstanceName,
    /// Its epoch.
    pub epoch: u64,
    /// Its owner.
    pub owner: Option<OwnerView>,
    /// How it was lost.
    pub loss: Loss,
}

impl LostBinding {
    /// The binding, lost like this.
    #[must_use]
    pub fn new(binding: &BindingView, loss: Loss) -> Self {
        Self {
            instance: binding.instance.clone(),
            epoch: binding.epoch,
            owner: binding.owner.clone(),
            loss,
        }
    }

    /// Whether another live gateway owns the connection, and so renews it itself.
    pub(crate) fn is_renewed_by_owner(&self, facts: &Facts<'_>) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| owner.alive && owner.worker != *facts.worker)
    }

    /// What is reported to the client once `binding` has taken its place: nothing if it is the same one.
    pub(crate) fn replaced_by(&self, binding: &BindingView) -> Option<StateLoss> {
        (binding.epoch != self.epoch).then(|| StateLoss {
            from: self.instance.clone(),
            to: binding.instance.clone(),
            epoch: binding.epoch,
            reason: self.loss.as_str().into(),
        })
    }
}

/// The upstream state of a session was lost when its binding moved. The record has it too, until the result of a tool has
/// reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLoss {
    /// The lost instance.
    pub from: InstanceName,
    /// The new instance.
    pub to: InstanceName,
    /// Its new epoch.
    pub epoch: u64,
    /// Why it was lost.
    pub reason: Cow<'static, str>,
}

impl StateLoss {
    /// A loss that the record has, because no result of a tool has reported it.
    pub(crate) fn recorded(unreported: UnreportedLoss, binding: &BindingView) -> Self {
        let reason = unreported.reason;
        Self {
            from: unreported.instance,
            to: binding.instance.clone(),
            epoch: binding.epoch,
            reason: reason
                .map_or_else(String::new, |reason| reason.as_str().to_owned())
                .into(),
        }
    }

    /// Two moves during one delivery count as one, from the first instance to the current one.
    pub(crate) fn merge(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(earlier), Some(later)) => Some(Self {
                from: earlier.from,
                ..later
            }),
            (earlier, later) => later.or(earlier),
        }
    }
}
