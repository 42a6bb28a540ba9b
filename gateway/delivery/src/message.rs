//! A message, what its delivery asks of the driver, and how it ends.

use std::time::Duration;

use mooring_session::view::BindingView;

use crate::facts::{Errors, OnLoss};
use crate::loss::StateLoss;
use crate::task::{ResolveFailure, ResolvedBinding, Task, TaskOutcome};

/// What a message allows.
#[derive(Clone, Copy, Debug)]
pub struct MessageRules {
    /// What to do if the upstream session is lost.
    pub on_loss: OnLoss,
    /// Whether it may be sent again after it may have run.
    pub repetition: Repetition,
    /// Set if the message belongs to one epoch only: an answer to a server-to-client request must not reach a later
    /// upstream session, where the same id may mean another request.
    pub epoch: Option<u64>,
}

/// Whether a message that may have run may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Yes: it only reads, or is idempotent.
    Harmless,
    /// Depends on the annotations of its tool.
    ByTool,
    /// No.
    Never,
}

/// How sending failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// The instance has refused connections for long enough to be lost. Nothing was delivered.
    Refused,
    /// There was no connection for another reason. Nothing was delivered.
    NotConnected,
    /// There was none for so long that the instance counts as lost. Nothing was delivered.
    Unreachable,
    /// Nothing was delivered, for a reason that does not go away while the client waits.
    Undeliverable,
    /// The owned connection has ended. Nothing was delivered.
    Ended,
    /// The gateway that was asked does not have the connection. Nothing was delivered.
    NotHere,
    /// The owner does not answer, or may not use its connections at present. Nothing was delivered.
    NotServed,
    /// The owner is draining. Nothing was delivered.
    OwnerDraining,
    /// The connection to the owner broke. The message may have run.
    OwnerBroken,
    /// The connection to the instance broke. The message may have run.
    Broken,
}

/// The result of asking an instance whether it knows an upstream session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It answers and knows the session.
    Alive,
    /// It refuses connections, or the owner of the connection does.
    InstanceLost,
    /// It answers and does not know the session.
    SessionLost,
    /// Unclear: a timeout or a server error.
    Unclear,
}

/// What the driver does next.
#[derive(Debug)]
pub enum Action<'a, E: Errors> {
    /// A step of resolving the binding: [`Event::Resolving`].
    Resolve(Task<'a>),
    /// Send the message over the binding: [`Event::Answered`] or [`Event::NotAnswered`].
    Send {
        /// The binding.
        binding: &'a BindingView,
        /// Whether the reply can be one to an unknown upstream session.
        has_session: bool,
    },
    /// Read the reply whole, to see whether it says that the upstream session is unknown: [`Event::Read`].
    Read(&'a BindingView),
    /// Ask the binding's instance over a new connection whether the upstream session still exists: [`Event::Probed`].
    Probe(&'a BindingView),
    /// Ask the other instances: [`Event::OthersAnswer`].
    ProbeOthers(&'a BindingView),
    /// Look up the annotations of the message's tool: [`Event::ToolRead`].
    ReadTool(&'a BindingView),
    /// Wait: [`Event::Waited`].
    Wait(Duration),
    /// Return the reply of the last attempt.
    Answer(DeliveryOutcome),
    /// Return the failure.
    Fail(Failure<E>),
}

/// The outcome of an [`Action`].
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it lives on the stack of one step, and a box would cost every call an allocation"
)]
pub enum Event<E: Errors> {
    /// Of a step of resolving.
    Resolving(TaskOutcome<E>),
    /// The instance answered.
    Answered {
        /// Whether the reply looks like one to an unknown upstream session. Never, without a session.
        may_be_unknown: bool,
    },
    /// It did not.
    NotAnswered(SendFault, E::Send),
    /// The whole reply, and whether it says that the upstream session is unknown.
    Read(Result<bool, E::Answer>),
    /// Of a probe.
    Probed(ProbeOutcome),
    /// Whether another instance answers. If none does, the fault may be in this gateway's network, and moving the session
    /// would lose its state for nothing.
    OthersAnswer(bool),
    /// What its server says of the tool.
    ToolRead(ToolReading),
    /// The wait has ended.
    Waited,
}

/// Whether a tool may be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolReading {
    /// It is annotated as read-only or idempotent.
    Repeatable,
    /// It is not, or its server has not said.
    NotRepeatable,
    /// The instance refuses connections, whatever the probe before has found: another one can say.
    Refused,
}

/// Over which binding the reply came, and what it tells.
#[derive(Debug)]
pub struct DeliveryOutcome {
    /// The binding, and the loss that the reply tells of.
    pub resolved: ResolvedBinding,
    /// Whether the loss counts as reported once the result has carried it.
    pub reports_loss: bool,
}

/// Why a message was not delivered, or its reply not received.
#[derive(Debug)]
pub enum Failure<E: Errors> {
    /// The session has no ready binding. Nothing ran.
    Resolve(ResolveFailure<E>),
    /// No connection to the instance, which does not prove a loss. Nothing ran.
    Unreachable(E::Send),
    /// The message may have run.
    OutcomeUnknown {
        /// Set if the binding was moved meanwhile.
        state_loss: Option<StateLoss>,
        /// What failed after the attempt that may have run; `None` if that is all.
        cause: Option<Box<Self>>,
    },
    /// The body of an error answer could not be read.
    Answer(E::Answer),
    /// The upstream session that the message belongs to is lost.
    Lost,
    /// Every attempt met a lost upstream session. Nothing ran.
    LostAgain {
        /// The move from the first of them to the current one.
        state_loss: Option<StateLoss>,
    },
}
