//! Delivers a message: resolves the binding, sends, and after a loss rebinds and decides whether to send again.

use std::time::{Duration, Instant};

use http::StatusCode;
use mooring_session::rules::{LossReport, Ownership, RouteReply};
use mooring_session::view::BindingView;

use super::annotations::is_repeatable;
use crate::affinity::{
    BindingLookup, Loss, RebindNotice, ResolveError, ResolvedBinding, Session, SessionRouter,
};
use mooring_metrics as metrics;
use mooring_protocol::Reply;
use mooring_protocol::ids::Epoch;
use mooring_upstream::{
    ExchangeError, Outgoing, ProbeResult, SendError, Server, UNREACHED_LOST_AFTER,
    is_session_unknown, read_answer,
};

/// Most attempts to send one message, losses included.
const ATTEMPTS_MAX: usize = 3;
/// How long a message waits for a binding whose owner does not serve it: longer than `worker.beat_ttl_ms`, after which
/// the store counts the owner as dead.
const OWNER_WITHIN: Duration = Duration::from_secs(15);
/// Pause between two checks of such a binding.
const OWNER_PAUSE: Duration = Duration::from_millis(50);

/// How long a message waits for an unreachable instance that does not count as lost, because other requests
/// reach it.
const UNREACHED_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two attempts to connect to it.
const UNREACHED_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(UNREACHED_WITHIN.as_millis() > UNREACHED_LOST_AFTER.as_millis());

/// A message to deliver.
#[derive(Debug)]
pub struct Call<'a> {
    /// The session it belongs to.
    pub session: &'a Session,
    /// The server it goes to.
    pub server: &'a Server,
    /// The request, without instance. Each attempt sets the upstream session.
    pub outgoing: Outgoing,
    /// What to do if the upstream session is lost.
    pub on_loss: OnLoss,
    /// Whether it may be sent again after it may have been delivered.
    pub repeat: RetrySafety<'a>,
    /// Set if the message belongs to one epoch only: an answer to a server-to-client request must not reach a later
    /// upstream session, where the same id may mean another request.
    pub epoch: Option<Epoch>,
    /// The route that the store returned with the call's turn.
    pub routed: Option<RouteReply>,
}

/// What to do if the upstream session is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Rebind and tell the client in the reply; also report an earlier loss that no reply has reported.
    Recover,
    /// Rebind. The reply may not be able to tell, so the next call's reply does.
    RecoverUnreported,
    /// Fail: there is no reply in which the client could be told. The next request rebinds and reports.
    GiveUp,
}

/// Whether a message that may have been delivered may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety<'a> {
    /// Yes: it only reads, or is idempotent.
    Harmless,
    /// Depends on the annotations of this tool.
    ByTool(&'a str),
    /// No.
    Never,
}

/// The upstream's reply, and the binding over which it came.
#[derive(Debug)]
pub struct DeliveryResult {
    /// The reply, whose body may still be arriving.
    pub reply: Reply,
    /// The binding it came over.
    pub binding: BindingView,
    /// Set if the binding was moved during the delivery.
    pub moved: Option<RebindNotice>,
}

/// Why a message was not delivered, or its reply not received.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The session has no ready binding. Nothing ran.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// No connection to the instance, which does not prove a loss. Nothing ran.
    #[error("the instance cannot be reached: {0}")]
    Unreachable(#[source] SendError),
    /// The connection broke after the message may have been delivered.
    #[error("the connection to the instance broke during the call")]
    OutcomeUnknown {
        /// Set if the binding was moved meanwhile.
        moved: Option<RebindNotice>,
    },
    /// The body of an error answer could not be read.
    #[error(transparent)]
    Answer(#[from] ExchangeError),
    /// The upstream session that the message belongs to is lost.
    #[error("the upstream session that the message belongs to is lost")]
    Lost,
}

/// Whether a failed attempt may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionStatus {
    NotRun,
    MaybeRun,
}

/// The result of one attempt.
enum Attempt {
    Done(Reply),
    Lost(Loss, ExecutionStatus),
    /// Nothing was sent: the instance is unreachable and not lost yet.
    Unreached(SendError),
    /// The binding belongs to another gateway, or soon will: the store knows.
    Moving(SendError, ExecutionStatus),
    Broken,
    Failed(DeliverError),
}

/// Sends the call over the session's binding. The futures of what follows a failure are boxed, so that the future of a
/// call that succeeds is small.
///
/// # Errors
/// See [`DeliverError`].
pub async fn deliver(
    router: &SessionRouter,
    call: &mut Call<'_>,
) -> Result<DeliveryResult, DeliverError> {
    let (session, server) = (call.session, call.server);
    let known = call.routed.take();
    let mut resolved = resolve_binding(router, call, known).await?;
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
                // If the call may have run, the error must not say that it has not.
                if ran == ExecutionStatus::NotRun && since.elapsed() >= OWNER_WITHIN {
                    return Err(DeliverError::Unreachable(error));
                }
                if ran == ExecutionStatus::MaybeRun {
                    tracing::info!(session = %session.digest, server = %server.id, %error, "the gateway that holds the connection did not answer a call that it may have begun");
                }
                tokio::time::sleep(OWNER_PAUSE).await;
                let later = Box::pin(resolve_binding(router, call, None)).await?;
                resolved = follow(call.server, resolved, later, &error);
                if ran == ExecutionStatus::NotRun {
                    attempts = attempts.saturating_sub(1);
                }
                ran
            }
            Attempt::Lost(loss, ran) => {
                let report = report(call);
                let recovered =
                    Box::pin(router.recover(session, server, &resolved.binding, loss, report))
                        .await?;
                resolved = merge(resolved, recovered);
                ran
            }
            Attempt::Broken => ExecutionStatus::MaybeRun,
        };
        let may_repeat = attempts < ATTEMPTS_MAX
            && (ran == ExecutionStatus::NotRun
                || Box::pin(may_repeat(router, call, &resolved.binding)).await);
        if !may_repeat {
            return Err(DeliverError::OutcomeUnknown {
                moved: resolved.moved,
            });
        }
    }
}

/// The binding for the call. A lost one is moved only if the client can be told.
async fn resolve_binding(
    router: &SessionRouter,
    call: &Call<'_>,
    known: Option<RouteReply>,
) -> Result<ResolvedBinding, DeliverError> {
    let (session, server) = (call.session, call.server);
    match router.find_binding(session, server, known).await? {
        BindingLookup::Lost(..) if call.on_loss == OnLoss::GiveUp => Err(DeliverError::Lost),
        found => Ok(router
            .rebind_if_lost(session, server, found, report(call))
            .await?),
    }
}

/// Who reports a loss that the call encounters.
fn report(call: &Call<'_>) -> LossReport {
    match call.on_loss {
        OnLoss::Recover => LossReport::ByCaller,
        OnLoss::RecoverUnreported | OnLoss::GiveUp => LossReport::ByNextCall,
    }
}

/// The current binding if the owner did not serve it. If it was moved, this call has lost its upstream state too.
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
    let mut notice = match error {
        SendError::OwnerDraining => seen.moved,
        _ => later.moved.or(seen.moved),
    };
    if let Some(moved) = &mut notice {
        moved.is_recorded = is_recorded;
    }
    let later = ResolvedBinding {
        binding: later.binding,
        moved: notice,
    };
    merge(earlier, later)
}

/// Merges two moves during one call into one, from the first instance to the current one.
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

async fn attempt(router: &SessionRouter, call: &mut Call<'_>, binding: &BindingView) -> Attempt {
    let Some(instance) = call.server.instance(&binding.instance) else {
        return Attempt::Lost(Loss::InstanceRemoved, ExecutionStatus::NotRun);
    };
    let upstream_session = binding.upstream_session.as_ref();
    call.outgoing.set_upstream_session(upstream_session);
    let call = &*call;
    let started = Instant::now();
    let sent = router
        .send(call.session, call.server, binding, &call.outgoing)
        .await;
    metrics::upstream(started.elapsed());
    let broken = match sent {
        Ok(reply) => {
            if call.server.ownership == Ownership::Owned {
                // The contact with an owned connection is recorded only here.
                instance.contact.succeed();
            }
            let is_suspect = matches!(
                reply.status,
                StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST
            ) && binding.upstream_session.is_some();
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

/// A 404 or 400 may mean that the upstream session is gone, which a ping decides. In that case the call has not run.
async fn suspect(
    router: &SessionRouter,
    call: &Call<'_>,
    binding: &BindingView,
    reply: Reply,
) -> Attempt {
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
