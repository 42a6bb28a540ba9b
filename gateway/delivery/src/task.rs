//! What a resolution asks of its driver, and what the driver answers.

use std::time::Duration;

use mooring_session::names::{InstanceName, Token, UpstreamSession};
use mooring_session::rules::{
    BindReply, BindRequest, ConfirmRequest, RebindReply, RebindRequest, RouteReply, RouteRequest,
    UnbindRequest,
};
use mooring_session::view::BindingView;

use crate::facts::Errors;
use crate::loss::{LostBinding, StateLoss};

/// A claim of this attempt.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The claimed binding.
    pub binding: BindingView,
    /// What identifies the attempt.
    pub token: Token,
}

/// A binding that is ready for calls.
#[derive(Clone, Debug)]
pub struct ResolvedBinding {
    /// The binding.
    pub binding: BindingView,
    /// Set if the upstream's state was lost: while resolving, or before and no result of a tool has reported it.
    pub state_loss: Option<StateLoss>,
}

/// What the driver does next. Commands whose request is a repetition get the same reply, so the driver may repeat one
/// whose reply was lost.
#[derive(Debug)]
pub enum Task<'a> {
    /// Ask the store, answered by [`TaskOutcome::Routed`].
    Route(RouteRequest),
    /// Ask the store, answered by [`TaskOutcome::Bound`].
    Bind(Box<BindRequest>),
    /// Ask the store, answered by [`TaskOutcome::Rebound`].
    Rebind(Box<RebindRequest>),
    /// Ask the store, answered by [`TaskOutcome::Confirmed`].
    Confirm(Box<ConfirmRequest>),
    /// Drop the claim, so that the next request need not wait for its lease. If this fails, the lease expires:
    /// [`TaskOutcome::Done`].
    Unbind(Box<UnbindRequest>),
    /// Let the claim expire at once, likewise.
    LetLapse(Box<BindRequest>),
    /// Begin to watch for events about the session's binding: [`TaskOutcome::Woken`].
    WatchClaim,
    /// Wait for such an event, at most so long: [`TaskOutcome::Woken`].
    AwaitClaim(Duration),
    /// Draw a token that no other attempt has: [`TaskOutcome::Drawn`].
    DrawToken,
    /// Initialize an upstream session under the claim, as the session's client did: [`TaskOutcome::Initialized`].
    Initialize(&'a Claim),
    /// Restore the client's settings in the new upstream session, and note that the binding was made, or moved:
    /// [`TaskOutcome::Done`].
    Restore {
        /// The new binding.
        binding: &'a BindingView,
        /// The binding that it replaces, if this attempt has moved one.
        lost: Option<&'a LostBinding>,
    },
    /// Delete the upstream session that was initialized under the claim and is not recorded: [`TaskOutcome::Done`].
    DiscardNew(&'a Claim),
    /// Delete the upstream session that the lost binding had, in the background, because its instance may not answer:
    /// [`TaskOutcome::Done`].
    DiscardPrevious {
        /// The instance.
        instance: &'a InstanceName,
        /// The upstream session.
        upstream_session: &'a UpstreamSession,
    },
    /// Ask the live owner of a lost connection to renew it. The result is in the store: [`TaskOutcome::Done`].
    RenewAtOwner(&'a LostBinding),
    /// End the client's session: [`TaskOutcome::Done`].
    EndSession,
}

/// The outcome of a [`Task`].
#[derive(Debug)]
pub enum TaskOutcome<E: Errors> {
    /// The reply of ROUTE.
    Routed(Result<RouteReply, E::Store>),
    /// The reply of BIND.
    Bound(Result<BindReply, E::Store>),
    /// The reply of REBIND.
    Rebound(Result<RebindReply, E::Store>),
    /// The reply of CONFIRM.
    Confirmed(Result<BindingView, E::Store>),
    /// The claim may have come to a result.
    Woken {
        /// Whether the store currently reports events.
        receives_events: bool,
    },
    /// The token.
    Drawn(Token),
    /// The id of the new upstream session, if its instance assigned one.
    Initialized(Result<Option<UpstreamSession>, InitializeFailure<E>>),
    /// The task has ended.
    Done,
}

/// Why an instance was not initialized.
#[derive(Debug)]
pub enum InitializeFailure<E: Errors> {
    /// The handshake of the session's client is not known. Nothing was sent.
    Unprepared(ResolveFailure<E>),
    /// It did not answer, or with an error of its own. Another instance may.
    Unanswered(E::Handshake),
    /// It rejects this client, and so would any other.
    Refused(E::Handshake),
}

/// Why a session has no ready binding. Nothing ran.
#[derive(Debug)]
pub enum ResolveFailure<E: Errors> {
    /// The store refused or was unreachable.
    Store(E::Store),
    /// No instance was reachable.
    NoInstance(E::Handshake),
    /// Operators have parked every instance: the server gets no new sessions.
    Parked,
    /// An instance answered the handshake with an error.
    Handshake(E::Handshake),
    /// The client's initialize params are no longer stored, so the client has to initialize again.
    ParamsGone,
    /// By the server's policy the client has to initialize again.
    LostByPolicy,
    /// Another attempt did not initialize the binding in time.
    ClaimPending,
    /// The binding is lost, and the message is none for which it is moved.
    Lost,
}
