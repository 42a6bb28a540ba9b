//! Delivering: resolve the binding, send, and if the upstream session is lost, rebind and decide about sending again.

use std::time::{Duration, Instant};

use http::StatusCode;
use mooring_session::rules::{LossReport, Ownership, RouteReply};
use mooring_session::view::BindingView;

use super::annotations::is_repeatable;
use crate::affinity::{Loss, RebindNotice, ResolveError, ResolvedBinding, Session, SessionRouter};
use mooring_metrics as metrics;
use mooring_protocol::Reply;
use mooring_protocol::ids::Epoch;
use mooring_upstream::{
    ExchangeError, Outgoing, ProbeResult, SendError, Server, UNREACHED_LOST_AFTER,
    is_session_unknown, read_answer,
};

/// Most times one message is sent, losses included.
const ATTEMPTS_MAX: usize = 3;
/// How long a message waits for a binding whose owner does not serve it: until the store counts the owner as dead, which
/// takes `worker.beat_ttl_ms`, and then some.
const OWNER_WITHIN: Duration = Duration::from_secs(15);
/// Between two looks at where such a binding has gone.
const OWNER_PAUSE: Duration = Duration::from_millis(50);

/// How long a message waits for an instance that cannot be connected to and does not count as lost, because others reach it.
const UNREACHED_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts to connect to it.
const UNREACHED_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(UNREACHED_WITHIN.as_millis() > UNREACHED_LOST_AFTER.as_millis());

/// One message to be delivered.
#[derive(Debug)]
pub struct Call<'a> {
    /// The session it belongs to.
    pub session: &'a Session,
    /// The server it goes to.
    pub server: &'a Server,
    /// The request, short of where it goes and of the upstream session.
    pub outgoing: Outgoing,
    /// What is done where the upstream session is lost.
    pub on_loss: OnLoss,
    /// What may be done where it may have been delivered.
    pub repeat: RetrySafety<'a>,
    /// The epoch of the binding it belongs to, where it belongs to no other: an answer to a request that the upstream
    /// made must not reach a later upstream session, in which the same id may mean another request.
    pub epoch: Option<Epoch>,
    /// What the store said of the binding when it gave the call its turn.
    pub routed: Option<RouteReply>,
}

/// What is done where the upstream session is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// A new one is made, and the client is told in the reply; so it is of a loss that was met earlier, where no reply could
    /// tell.
    Recover,
    /// A new one is made. There may be no reply that could tell, so the next call's does.
    RecoverUnreported,
    /// Nothing: there is no reply in which the client could be told. The next request recovers and tells.
    GiveUp,
}

/// Whether a message that may have been delivered may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety<'a> {
    /// It reads, or sets what it set before.
    Harmless,
    /// It calls this tool, whose annotations decide.
    ByTool(&'a str),
    /// It must not be.
    Never,
}

/// The upstream's reply, and over which binding it came.
#[derive(Debug)]
pub struct DeliveryResult {
    /// What the upstream answered; its body may still arrive.
    pub reply: Reply,
    /// The binding it came over.
    pub binding: BindingView,
    /// Set where the binding was moved on the way.
    pub moved: Option<RebindNotice>,
}

/// Why a message was not delivered, or its answer not received.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The session has no binding that is ready. Nothing ran.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The instance could not be connected to, which is no proof of its loss. Nothing ran.
    #[error("the instance cannot be reached: {0}")]
    Unreachable(#[source] SendError),
    /// The connection broke after the message may have been delivered.
    #[error("the connection to the instance broke during the call")]
    OutcomeUnknown {
        /// Set where the binding was moved meanwhile.
        moved: Option<RebindNotice>,
    },
    /// An error answer could not be read.
    #[error(transparent)]
    Answer(#[from] ExchangeError),
    /// The upstream session that the message belongs to is lost.
    #[error("the upstream session that the message belongs to is lost")]
    Lost,
}

/// Whether a failed attempt can have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionStatus {
    NotRun,
    MaybeRun,
}

/// What one attempt came to.
enum Attempt {
    Done(Reply),
    Lost(Loss, ExecutionStatus),
    /// Nothing was sent: the instance could not be connected to, and is not lost yet.
    Unreached(SendError),
    /// The binding is another worker's, or is about to be: the store knows.
    Moving(SendError, ExecutionStatus),
    Broken,
    Failed(DeliverError),
}

/// Sends the call over the session's binding.
///
/// # Errors
/// See [`DeliverError`].
pub async fn deliver(
    router: &SessionRouter,
    call: &Call<'_>,
) -> Result<DeliveryResult, DeliverError> {
    let (session, server) = (call.session, call.server);
    let mut resolved = resolve_binding(router, call, call.routed.clone()).await?;
    let mut attempts = 0_usize;
    let mut moving_since = None;
    let mut unreached_since = None;
    loop {
        if (call.epoch).is_some_and(|epoch| epoch.0 != resolved.binding.epoch) {
            return Err(DeliverError::Lost);
        }
        attempts = attempts.saturating_add(1);
        let ran = match attempt(router, call, &resolved.binding).await {
            Attempt::Done(reply) => {
                return Ok(DeliveryResult {
                    reply,
                    binding: resolved.binding,
                    moved: resolved.moved,
                });
            }
            Attempt::Failed(error) => return Err(error),
            Attempt::Unreached(error) => {
                let since = *unreached_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= UNREACHED_WITHIN {
                    return Err(DeliverError::Unreachable(error));
                }
                tokio::time::sleep(UNREACHED_PAUSE).await;
                attempts = attempts.saturating_sub(1);
                continue;
            }
            Attempt::Lost(..) if call.on_loss == OnLoss::GiveUp => {
                return Err(DeliverError::Lost);
            }
            Attempt::Moving(error, ran) => {
                let since = *moving_since.get_or_insert_with(Instant::now);
                // Of a call that may have run it must not be said that it has not.
                if ran == ExecutionStatus::NotRun && since.elapsed() >= OWNER_WITHIN {
                    return Err(DeliverError::Unreachable(error));
                }
                if ran == ExecutionStatus::MaybeRun {
                    tracing::info!(session = %session.digest, server = %server.id, %error, "the gateway that holds the connection did not answer a call that it may have begun");
                }
                tokio::time::sleep(OWNER_PAUSE).await;
                let later = resolve_binding(router, call, None).await?;
                resolved = follow(call.server, resolved, later, &error);
                if ran == ExecutionStatus::NotRun {
                    attempts = attempts.saturating_sub(1);
                }
                ran
            }
            Attempt::Lost(loss, ran) => {
                let recovered = router
                    .recover(session, server, &resolved.binding, loss, report(call))
                    .await?;
                resolved = merge(resolved, recovered);
                ran
            }
            Attempt::Broken => ExecutionStatus::MaybeRun,
        };
        let may_repeat = attempts < ATTEMPTS_MAX
            && (ran == ExecutionStatus::NotRun
                || may_repeat(router, call, &resolved.binding).await);
        if !may_repeat {
            return Err(DeliverError::OutcomeUnknown {
                moved: resolved.moved,
            });
        }
    }
}

/// The binding that the call goes over. One that is lost is moved only where the client can be told.
async fn resolve_binding(
    router: &SessionRouter,
    call: &Call<'_>,
    known: Option<RouteReply>,
) -> Result<ResolvedBinding, DeliverError> {
    let (session, server) = (call.session, call.server);
    match call.on_loss {
        OnLoss::Recover | OnLoss::RecoverUnreported => Ok(router
            .resolve_binding_from(session, server, known, report(call))
            .await?),
        OnLoss::GiveUp => {
            let resolved = router.resolve_unless_lost(session, server, known).await?;
            resolved.ok_or(DeliverError::Lost)
        }
    }
}

/// Who tells the client of a loss that the call meets.
fn report(call: &Call<'_>) -> LossReport {
    match call.on_loss {
        OnLoss::Recover => LossReport::ByCaller,
        OnLoss::RecoverUnreported | OnLoss::GiveUp => LossReport::ByNextCall,
    }
}

/// Where a binding has gone whose owner did not serve it. Whoever moved it, its state is lost to this call too.
fn follow(
    server: &Server,
    earlier: ResolvedBinding,
    later: ResolvedBinding,
    error: &SendError,
) -> ResolvedBinding {
    let reason = match error {
        SendError::OwnerDraining => Loss::OwnerStopped,
        _ => Loss::OwnerDead,
    };
    let seen = ResolvedBinding::after(server, &earlier.binding, later.binding.clone(), reason);
    let is_recorded = (later.moved.as_ref()).is_some_and(|moved| moved.is_recorded);
    let mut told = match error {
        SendError::OwnerDraining => seen.moved,
        _ => later.moved.or(seen.moved),
    };
    if let Some(moved) = &mut told {
        moved.is_recorded = is_recorded;
    }
    let later = ResolvedBinding {
        binding: later.binding,
        moved: told,
    };
    merge(earlier, later)
}

/// A second move during one call is told as one: from where it was first to where it is now.
fn merge(earlier: ResolvedBinding, later: ResolvedBinding) -> ResolvedBinding {
    let moved = match (earlier.moved, later.moved) {
        (Some(earlier), Some(later)) => Some(RebindNotice {
            from: earlier.from,
            ..later
        }),
        (earlier, later) => later.or(earlier),
    };
    ResolvedBinding {
        binding: later.binding,
        moved,
    }
}

async fn attempt(router: &SessionRouter, call: &Call<'_>, binding: &BindingView) -> Attempt {
    let Some(instance) = call.server.instance(&binding.instance) else {
        return Attempt::Lost(Loss::InstanceRemoved, ExecutionStatus::NotRun);
    };
    let outgoing = call
        .outgoing
        .clone()
        .session_digest(&call.session.digest)
        .upstream_session(binding.upstream_session.as_ref());
    let started = Instant::now();
    let sent = router
        .send(call.session, call.server, binding, &outgoing)
        .await;
    metrics::upstream(started.elapsed());
    let broken = match sent {
        Ok(reply) => {
            if call.server.ownership == Ownership::Owned {
                // Nobody else sees that a connection which a worker holds is alive.
                instance.contact.succeed();
            }
            return answered(router, call, binding, reply).await;
        }
        Err(SendError::Refused) => {
            return Attempt::Lost(Loss::InstanceRefuses, ExecutionStatus::NotRun);
        }
        Err(SendError::Ended(_)) => {
            return Attempt::Lost(Loss::ConnectionEnded, ExecutionStatus::NotRun);
        }
        Err(
            error @ (SendError::Elsewhere | SendError::OwnerDraining | SendError::OwnerUnavailable(_)),
        ) => return Attempt::Moving(error, ExecutionStatus::NotRun),
        // Keys that differ do not become the same while the client waits.
        Err(error @ SendError::OwnerUnverified(_)) => {
            return Attempt::Failed(DeliverError::Unreachable(error));
        }
        Err(error @ SendError::OwnerBroken(_)) => {
            return Attempt::Moving(error, ExecutionStatus::MaybeRun);
        }
        Err(error) if error.is_undelivered() => {
            return unreached(router, call, binding, error).await;
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
    match router.probe(call.session, call.server, binding).await {
        ProbeResult::InstanceLost => {
            Attempt::Lost(Loss::InstanceRefuses, ExecutionStatus::MaybeRun)
        }
        ProbeResult::SessionLost => Attempt::Lost(Loss::SessionUnknown, ExecutionStatus::MaybeRun),
        ProbeResult::Alive | ProbeResult::Unclear => Attempt::Broken,
    }
}

/// No connection to the instance could be made. There may be another one to go to, in a while.
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
            if may_move && router.does_another_answer(server, instance).await =>
        {
            Attempt::Lost(Loss::InstanceUnreachable, ExecutionStatus::NotRun)
        }
        error => {
            metrics::affinity_failure("no_instance");
            Attempt::Failed(DeliverError::Unreachable(error))
        }
    }
}

/// A 404 or 400 may say that the upstream session is gone; a ping decides. Such an answer also says that the call did
/// not run.
async fn answered(
    router: &SessionRouter,
    call: &Call<'_>,
    binding: &BindingView,
    reply: Reply,
) -> Attempt {
    let is_suspect = matches!(
        reply.status,
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST
    ) && binding.upstream_session.is_some();
    if !is_suspect {
        return Attempt::Done(reply);
    }
    let answer = match read_answer(reply).await {
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
    Attempt::Done(answer.into_reply())
}

async fn may_repeat(router: &SessionRouter, call: &Call<'_>, binding: &BindingView) -> bool {
    match call.repeat {
        RetrySafety::Harmless => true,
        RetrySafety::Never => false,
        RetrySafety::ByTool(name) => {
            is_repeatable(router, call.session, call.server, binding, name).await
        }
    }
}
