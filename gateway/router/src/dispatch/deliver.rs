//! Delivers a message: resolves the binding, sends, and after a loss rebinds and decides whether to send again.
//!
//! Invariant: once an attempt may have run, every error says so, whatever fails afterwards.

use std::time::{Duration, Instant};

use mooring_session::rules::RouteReply;
use mooring_session::view::BindingView;

use super::annotations::is_repeatable;
use super::attempt::{Attempt, ExecutionStatus, attempt};
use crate::affinity::{
    BindingLookup, Loss, RebindNotice, ResolveError, ResolvedBinding, Session, SessionRouter,
};
use mooring_protocol::Reply;
use mooring_protocol::ids::Epoch;
use mooring_upstream::{ExchangeError, Outgoing, SendError, Server, UNREACHED_LOST_AFTER};

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
    /// Rebind. The reply is the result of a tool, which reports the loss: also one from before.
    RecoverAndReport,
    /// Rebind. The reply tells the client too, but the loss counts as reported only once the result of a tool has carried
    /// it: what clients do with other replies is hidden from their users.
    Recover,
    /// Fail: there is no reply. The next request rebinds.
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
    /// The loss that the reply tells of.
    pub moved: Option<RebindNotice>,
    /// Whether the loss counts as reported once the result has carried it.
    pub reports_loss: bool,
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
    /// Every attempt met a lost upstream session. Nothing ran.
    #[error("the upstream session was lost {ATTEMPTS_MAX} times in a row")]
    LostAgain {
        /// The move from the first of them to the current one.
        moved: Option<RebindNotice>,
    },
}

/// Sends the call over the session's binding. The future of what follows a failure is boxed, so that the future of a
/// call that succeeds is small.
///
/// # Errors
/// See [`DeliverError`].
pub async fn deliver(
    router: &SessionRouter,
    call: &mut Call<'_>,
) -> Result<DeliveryResult, DeliverError> {
    let known = call.routed.take();
    let mut progress = Progress {
        resolved: resolve_binding(router, call, known).await?,
        attempts: 0,
        ran: ExecutionStatus::NotRun,
        moving_since: None,
        unreached_since: None,
    };
    loop {
        let binding = &progress.resolved.binding;
        if (call.epoch).is_some_and(|epoch| epoch.0 != binding.epoch) {
            return Err(DeliverError::Lost);
        }
        match attempt(router, call, binding).await {
            Attempt::Done(reply) => {
                return Ok(DeliveryResult {
                    reply,
                    binding: progress.resolved.binding,
                    moved: progress.resolved.moved,
                    reports_loss: call.on_loss == OnLoss::RecoverAndReport,
                });
            }
            failed => Box::pin(progress.continue_after(router, call, failed)).await?,
        }
    }
}

/// The state of one delivery after its attempts so far.
struct Progress {
    resolved: ResolvedBinding,
    /// Attempts that count towards [`ATTEMPTS_MAX`].
    attempts: usize,
    /// Whether any attempt may have run.
    ran: ExecutionStatus,
    moving_since: Option<Instant>,
    unreached_since: Option<Instant>,
}

impl Progress {
    /// Prepares the next attempt. Whatever fails after an attempt that may have run, the error says that it may have,
    /// because clients repeat a call after other errors. A message that is harmless to repeat keeps its error, and so
    /// does one that only concerned the lost upstream session.
    async fn continue_after(
        &mut self,
        router: &SessionRouter,
        call: &Call<'_>,
        failed: Attempt,
    ) -> Result<(), DeliverError> {
        let Err(error) = self.prepare_next(router, call, failed).await else {
            return Ok(());
        };
        let is_kept = call.repeat == RetrySafety::Harmless
            || matches!(
                error,
                DeliverError::Lost | DeliverError::OutcomeUnknown { .. }
            );
        if self.ran == ExecutionStatus::NotRun || is_kept {
            return Err(error);
        }
        tracing::info!(session = %call.session.digest, server = %call.server.id, %error, "a call may have run, and what follows failed");
        Err(DeliverError::OutcomeUnknown {
            moved: self.resolved.moved.take(),
        })
    }

    async fn prepare_next(
        &mut self,
        router: &SessionRouter,
        call: &Call<'_>,
        failed: Attempt,
    ) -> Result<(), DeliverError> {
        let (session, server) = (call.session, call.server);
        let ran = failed.execution_status();
        if ran == ExecutionStatus::MaybeRun {
            self.ran = ran;
        }
        match failed {
            Attempt::Done(_) | Attempt::Broken => {}
            Attempt::Failed(error) => return Err(error),
            Attempt::Unreached(error) => {
                let since = *self.unreached_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= UNREACHED_WITHIN {
                    return Err(DeliverError::Unreachable(error));
                }
                tokio::time::sleep(UNREACHED_PAUSE).await;
                // Another request may have moved the session meanwhile.
                return self.resolve_again(router, call, &error).await;
            }
            Attempt::Lost(..) if call.on_loss == OnLoss::GiveUp => {
                return Err(DeliverError::Lost);
            }
            Attempt::Moving(error, _) => {
                let since = *self.moving_since.get_or_insert_with(Instant::now);
                if ran == ExecutionStatus::NotRun && since.elapsed() >= OWNER_WITHIN {
                    return Err(DeliverError::Unreachable(error));
                }
                if ran == ExecutionStatus::MaybeRun {
                    tracing::info!(session = %session.digest, server = %server.id, %error, "the gateway that holds the connection did not answer a call that it may have begun");
                }
                tokio::time::sleep(OWNER_PAUSE).await;
                self.resolve_again(router, call, &error).await?;
                if ran == ExecutionStatus::NotRun {
                    return Ok(());
                }
            }
            Attempt::Lost(loss, _) => {
                let lost = &self.resolved.binding;
                let recovered = router.recover(session, server, lost, loss);
                let recovered = recovered.await?;
                self.adopt(recovered);
            }
        }
        self.attempts = self.attempts.saturating_add(1);
        let may_repeat = self.attempts < ATTEMPTS_MAX
            && (ran == ExecutionStatus::NotRun
                || may_repeat(router, call, &self.resolved.binding).await);
        if may_repeat {
            return Ok(());
        }
        let moved = self.resolved.moved.take();
        Err(match self.ran {
            ExecutionStatus::NotRun => DeliverError::LostAgain { moved },
            ExecutionStatus::MaybeRun => DeliverError::OutcomeUnknown { moved },
        })
    }

    /// Reads the record again after the binding did not serve the call.
    async fn resolve_again(
        &mut self,
        router: &SessionRouter,
        call: &Call<'_>,
        error: &SendError,
    ) -> Result<(), DeliverError> {
        let later = resolve_binding(router, call, None).await?;
        self.adopt(follow(call.server, &self.resolved.binding, later, error));
        Ok(())
    }

    /// Takes the later binding, and merges two moves during one call into one, from the first instance to the current
    /// one.
    fn adopt(&mut self, later: ResolvedBinding) {
        let moved = match (self.resolved.moved.take(), later.moved) {
            (Some(earlier), Some(later)) => Some(RebindNotice {
                from: earlier.from,
                ..later
            }),
            (earlier, later) => later.or(earlier),
        };
        self.resolved = ResolvedBinding {
            binding: later.binding,
            moved,
        };
    }
}

/// The binding for the call. A lost one is moved only if there is a reply.
async fn resolve_binding(
    router: &SessionRouter,
    call: &Call<'_>,
    known: Option<RouteReply>,
) -> Result<ResolvedBinding, DeliverError> {
    let (session, server) = (call.session, call.server);
    match router.find_binding(session, server, known).await? {
        BindingLookup::Lost(..) if call.on_loss == OnLoss::GiveUp => Err(DeliverError::Lost),
        BindingLookup::Ready(binding, _) if call.on_loss != OnLoss::RecoverAndReport => {
            Ok(ResolvedBinding {
                binding,
                moved: None,
            })
        }
        found => Ok(router.rebind_if_lost(session, server, found).await?),
    }
}

/// The current binding if the earlier one did not serve the call. If it was moved, this call has lost its upstream state
/// too.
fn follow(
    server: &Server,
    earlier: &BindingView,
    later: ResolvedBinding,
    error: &SendError,
) -> ResolvedBinding {
    let reason = match error {
        SendError::OwnerDraining => Loss::OwnerStopped,
        SendError::Connect(_) => Loss::InstanceUnreachable,
        _ => Loss::OwnerDead,
    };
    let seen = ResolvedBinding::after(server, earlier, later.binding.clone(), reason);
    let moved = match error {
        SendError::OwnerDraining => seen.moved,
        _ => later.moved.or(seen.moved),
    };
    ResolvedBinding {
        binding: later.binding,
        moved,
    }
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
