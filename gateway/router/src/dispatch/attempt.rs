//! One attempt to send a message over a session's binding.
//!
//! Invariant: a failure counts as not run only if the instance certainly has not begun the message.

use mooring_session::rules::Ownership;
use mooring_session::view::BindingView;

use super::deliver::{Call, DeliverError, OnLoss};
use crate::affinity::{Loss, SessionRouter};
use mooring_metrics as metrics;
use mooring_protocol::Reply;
use mooring_upstream::{
    ProbeResult, SendError, is_session_unknown, may_be_session_unknown, read_answer,
};

/// Whether a failed attempt may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutionStatus {
    /// It has not.
    NotRun,
    /// It may have.
    MaybeRun,
}

/// The result of one attempt.
pub(super) enum Attempt {
    /// The instance answered.
    Done(Reply),
    /// The upstream session is lost.
    Lost(Loss, ExecutionStatus),
    /// Nothing was sent: the instance is unreachable and not lost yet.
    Unreached(SendError),
    /// The binding belongs to another gateway, or soon will: the store knows.
    Moving(SendError, ExecutionStatus),
    /// The connection broke after it was established, and the upstream session is not lost.
    Broken,
    /// No other attempt is of use.
    Failed(DeliverError),
}

impl Attempt {
    /// Whether the message may have run, as far as this attempt shows.
    pub(super) const fn execution_status(&self) -> ExecutionStatus {
        match self {
            Self::Lost(_, ran) | Self::Moving(_, ran) => *ran,
            Self::Done(_) | Self::Broken => ExecutionStatus::MaybeRun,
            Self::Unreached(_) | Self::Failed(_) => ExecutionStatus::NotRun,
        }
    }
}

/// Sends the call over the binding once. The futures of what follows a failure are boxed, so that the future of a call
/// that succeeds is small.
pub(super) async fn attempt(
    router: &SessionRouter,
    call: &mut Call<'_>,
    binding: &BindingView,
) -> Attempt {
    let Some(instance) = call.server.instance(&binding.instance) else {
        return Attempt::Lost(Loss::InstanceRemoved, ExecutionStatus::NotRun);
    };
    let upstream_session = binding.upstream_session.as_ref();
    call.outgoing.set_upstream_session(upstream_session);
    let call = &*call;
    let exchange =
        (call.outgoing).begin_exchange(call.server.id.as_str(), binding.instance.as_str());
    let sent = router
        .send(call.session, call.server, binding, &call.outgoing)
        .await;
    let sent = match exchange {
        Some(exchange) => sent.map(|reply| exchange.watch(reply)),
        None => sent,
    };
    let broken = match sent {
        Ok(mut reply) => {
            if call.server.ownership == Ownership::Owned {
                // The contact with an owned connection is recorded only here.
                instance.contact.succeed();
            }
            let is_suspect =
                binding.upstream_session.is_some() && may_be_session_unknown(&mut reply);
            return match is_suspect {
                true => Box::pin(suspect(router, call, binding, reply)).await,
                false => Attempt::Done(reply),
            };
        }
        Err(SendError::Refused) => {
            return Attempt::Lost(Loss::InstanceRefuses, ExecutionStatus::NotRun);
        }
        Err(SendError::Ended(_)) => {
            return Attempt::Lost(Loss::ConnectionEnded, ExecutionStatus::NotRun);
        }
        Err(
            error @ (SendError::Elsewhere
            | SendError::OwnerDraining
            | SendError::OwnerUnavailable(_)),
        ) => return Attempt::Moving(error, ExecutionStatus::NotRun),
        // A mismatch of fleet keys does not go away while the client waits, nor does a missing credential.
        Err(error @ (SendError::OwnerUnverified(_) | SendError::Credential(_))) => {
            return Attempt::Failed(DeliverError::Unreachable(error));
        }
        Err(error @ SendError::OwnerBroken(_)) => {
            return Attempt::Moving(error, ExecutionStatus::MaybeRun);
        }
        Err(error) if error.is_undelivered() => {
            return Box::pin(unreached(router, call, binding, error)).await;
        }
        Err(error) => error,
    };
    tracing::info!(
        session = %call.session.digest,
        server = %call.server.id,
        instance = %binding.instance,
        error = %broken,
        "a connection broke during a call"
    );
    match Box::pin(router.probe(call.session, call.server, binding)).await {
        ProbeResult::InstanceLost => {
            Attempt::Lost(Loss::InstanceRefuses, ExecutionStatus::MaybeRun)
        }
        ProbeResult::SessionLost => Attempt::Lost(Loss::SessionUnknown, ExecutionStatus::MaybeRun),
        ProbeResult::Alive | ProbeResult::Unclear => Attempt::Broken,
    }
}

/// The attempt's result without a connection to the instance: wait, rebind if another instance answers, or fail.
async fn unreached(
    router: &SessionRouter,
    call: &Call<'_>,
    binding: &BindingView,
    error: SendError,
) -> Attempt {
    let (server, instance) = (call.server, &binding.instance);
    let may_move = call.on_loss != OnLoss::GiveUp && server.instances.len() > 1;
    match error {
        SendError::Connect(_) if may_move => Attempt::Unreached(error),
        SendError::Unreachable(_)
            if may_move && router.another_instance_answers(server, instance).await =>
        {
            Attempt::Lost(Loss::InstanceUnreachable, ExecutionStatus::NotRun)
        }
        error => {
            metrics::affinity_failure("no_instance");
            Attempt::Failed(DeliverError::Unreachable(error))
        }
    }
}

/// The reply may mean that the upstream session is gone, which a ping decides. In that case the call has not run.
async fn suspect(
    router: &SessionRouter,
    call: &Call<'_>,
    binding: &BindingView,
    reply: Reply,
) -> Attempt {
    let retry_after = reply.retry_after.clone();
    let source = router.reply_source(call.server, binding);
    let answer = match read_answer(reply, &call.outgoing, &source).await {
        Ok(answer) => answer,
        Err(error) => return Attempt::Failed(error.into()),
    };
    if is_session_unknown(&answer) {
        match router.probe(call.session, call.server, binding).await {
            ProbeResult::SessionLost => {
                return Attempt::Lost(Loss::SessionUnknown, ExecutionStatus::NotRun);
            }
            ProbeResult::InstanceLost => {
                return Attempt::Lost(Loss::InstanceRefuses, ExecutionStatus::NotRun);
            }
            ProbeResult::Alive | ProbeResult::Unclear => {}
        }
    }
    let mut reply = answer.into_reply();
    reply.retry_after = retry_after;
    Attempt::Done(reply)
}
