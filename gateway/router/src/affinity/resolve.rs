//! Resolving: from a session and a server to the one binding that its calls use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use mooring_session::names::{Reason, ServerName};
use mooring_session::rules::{
    LossReport, ReportedLoss, RouteReply, RouteRequest, TouchRequest, UnreportedLoss,
};
use mooring_session::time::Millis;
use mooring_session::view::{BindingState, BindingView};
use tokio::time::Instant;

use super::recover::Loss;
use super::wake_ups::Waiter;
use super::{Session, SessionRouter};
use mooring_metrics as metrics;
use mooring_protocol::Rebound;
use mooring_protocol::ids::Epoch;
use mooring_store::StoreError;
use mooring_upstream::{HandshakeError, Server};

/// First and longest pause between two looks at another worker's claim, where the store reports no events.
const POLL_FIRST: Duration = Duration::from_millis(2);
/// See [`POLL_FIRST`].
const POLL_MAX: Duration = Duration::from_millis(100);
/// The same where the store reports events: for an event that was lost, and for a claim whose lease lapses.
const BACKSTOP: Duration = Duration::from_secs(1);

/// A binding that is ready for calls.
#[derive(Clone, Debug)]
pub struct ResolvedBinding {
    /// Where the calls go.
    pub binding: BindingView,
    /// Set where the binding was moved on the way, and the upstream's state lost with it.
    pub moved: Option<RebindNotice>,
}

impl ResolvedBinding {
    /// What came of a loss: where the binding has another epoch now, the state it had upstream is gone.
    #[must_use]
    pub fn after(server: &Server, lost: &BindingView, binding: BindingView, reason: Loss) -> Self {
        let moved = (binding.epoch != lost.epoch).then(|| RebindNotice {
            from: server.client_name(&lost.instance),
            to: server.client_name(&binding.instance),
            epoch: binding.epoch,
            reason: reason.as_str().into(),
            is_recorded: false,
        });
        Self { binding, moved }
    }

    /// A binding that is ready. A loss that no reply has told of yet is this caller's to tell, if it has a reply.
    fn ready(
        server: &Server,
        binding: BindingView,
        unreported: Option<UnreportedLoss>,
        report: LossReport,
    ) -> Self {
        let unreported = unreported.filter(|_| report == LossReport::ByCaller);
        let moved = unreported.map(|loss| RebindNotice {
            from: server.client_name(&loss.instance),
            to: server.client_name(&binding.instance),
            epoch: binding.epoch,
            reason: (loss.reason.as_ref())
                .map_or_else(String::new, |reason| reason.as_str().to_owned())
                .into(),
            is_recorded: true,
        });
        Self { binding, moved }
    }
}

/// Tells the client that a binding was moved and its upstream state lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebindNotice {
    /// The instance that was lost, as clients know it.
    pub from: Box<str>,
    /// Where the binding is now, as clients know it.
    pub to: Box<str>,
    /// Its new epoch.
    pub epoch: u64,
    /// Why.
    pub reason: Cow<'static, str>,
    /// Whether the record says that no reply has told of it yet: [`SessionRouter::note_loss_reported`] ends that.
    pub is_recorded: bool,
}

impl RebindNotice {
    /// What the client is told.
    #[must_use]
    pub fn to_mark(&self) -> Rebound<'_> {
        Rebound {
            from: &self.from,
            to: &self.to,
            epoch: Epoch(self.epoch),
            reason: &self.reason,
        }
    }
}

/// Why a session has no binding that is ready.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The store refused, or could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No instance could be reached. Nothing ran.
    #[error("no instance could be reached: {0}")]
    NoInstance(#[source] HandshakeError),
    /// An instance answered the handshake with an error.
    #[error("the instance refused the handshake: {0}")]
    Handshake(#[source] HandshakeError),
    /// The client's initialize params are not kept any more: the client has to initialize again.
    #[error("the initialize params of the session are gone")]
    ParamsGone,
    /// The server's policy is that the client initializes again.
    #[error("the upstream session was lost and the server's policy is to fail")]
    LostByPolicy,
    /// Another worker did not initialize the binding in time.
    #[error("another worker did not initialize the upstream session in time")]
    Unsettled,
    /// A name of the gateway's own making was refused, which would be a defect.
    #[error(transparent)]
    Name(#[from] mooring_session::names::NameError),
}

/// What there is of a session at a server.
enum BindingLookup {
    /// A binding that carries calls.
    Ready(BindingView, Option<UnreportedLoss>),
    /// One that was lost, and how.
    Lost(BindingView, Loss),
}

/// How one request waits for a claim of another attempt.
struct ClaimWait {
    ends_at: Instant,
    pause: Duration,
    waiter: Option<Waiter>,
}

impl ClaimWait {
    /// As long as an attempt may take, and the answer it waits for.
    fn new(router: &SessionRouter) -> Self {
        let options = router.options();
        let lease = Duration::from_millis(options.claim_lease.get());
        Self {
            ends_at: Instant::now() + lease + options.answer_timeout,
            pause: POLL_FIRST,
            waiter: None,
        }
    }

    /// Returns when it is time to ask the store again.
    async fn wait(
        &mut self,
        router: &SessionRouter,
        session: &Session,
        server: &Server,
    ) -> Result<(), ResolveError> {
        if Instant::now() >= self.ends_at {
            return Err(ResolveError::Unsettled);
        }
        let waiters = router.waiters();
        match &mut self.waiter {
            // Whoever waits from now on hears of everything that settles from now on; what settled since the store was
            // asked is found by asking once more at once.
            None => self.waiter = Some(waiters.join(&session.key, &server.id)),
            Some(waiter) if waiters.receives_events() => waiter.woken(BACKSTOP).await,
            Some(waiter) => {
                waiter.woken(self.pause).await;
                self.pause = self.pause.saturating_mul(2).min(POLL_MAX);
            }
        }
        Ok(())
    }
}

impl SessionRouter {
    /// The binding that carries the session's calls to `server`; made, adopted or moved where that is needed. `report` says
    /// whether the caller has a reply that can tell the client of a loss.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve_binding(
        &self,
        session: &Session,
        server: &Server,
        report: LossReport,
    ) -> Result<ResolvedBinding, ResolveError> {
        self.resolve_binding_from(session, server, None, report)
            .await
    }

    /// The same, where the store has just said where the session's calls go.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve_binding_from(
        &self,
        session: &Session,
        server: &Server,
        known: Option<RouteReply>,
        report: LossReport,
    ) -> Result<ResolvedBinding, ResolveError> {
        match self.find_binding(session, server, known).await? {
            BindingLookup::Ready(binding, unreported) => {
                Ok(ResolvedBinding::ready(server, binding, unreported, report))
            }
            BindingLookup::Lost(binding, loss) => {
                self.move_from(session, server, &binding, loss, report)
                    .await
            }
        }
    }

    /// A reply has told the client of the loss. Where that cannot be noted, the next reply tells of it once more.
    pub async fn note_loss_reported(
        &self,
        session: &Session,
        server: &ServerName,
        moved: &RebindNotice,
    ) {
        if !moved.is_recorded {
            return;
        }
        let request = TouchRequest {
            principal: session.principal.clone(),
            ttl: None,
            content_hash: None,
            labels: BTreeMap::new(),
            reported: Some(ReportedLoss {
                server: server.clone(),
                epoch: moved.epoch,
            }),
        };
        if let Err(error) = self.store().touch(&session.key, &request).await {
            tracing::info!(session = %session.digest, %server, %error, "a reported loss was not noted; the next reply reports it again");
        }
    }

    /// The same for a message without a reply in which the client could be told of a loss: none where the binding was lost.
    /// It stays so, and the next request moves it and tells.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve_unless_lost(
        &self,
        session: &Session,
        server: &Server,
        known: Option<RouteReply>,
    ) -> Result<Option<ResolvedBinding>, ResolveError> {
        match self.find_binding(session, server, known).await? {
            BindingLookup::Ready(binding, _) => Ok(Some(ResolvedBinding {
                binding,
                moved: None,
            })),
            BindingLookup::Lost(..) => Ok(None),
        }
    }

    /// The session's binding, made where there was none; others' claims are waited for.
    async fn find_binding(
        &self,
        session: &Session,
        server: &Server,
        mut known: Option<RouteReply>,
    ) -> Result<BindingLookup, ResolveError> {
        let mut claim_wait = ClaimWait::new(self);
        loop {
            let routed = match known.take() {
                Some(routed) => self.noted(session, server, routed),
                None => self.route(session, server).await?,
            };
            let unreported = routed.unreported_loss;
            let Some(binding) = routed.binding else {
                metrics::affinity_miss();
                match self.bind_anew(session, server).await? {
                    Some(binding) => return Ok(BindingLookup::Ready(binding, None)),
                    None => continue,
                }
            };
            match binding.state {
                BindingState::Bound if server.instance(&binding.instance).is_none() => {
                    return Ok(BindingLookup::Lost(binding, Loss::InstanceRemoved));
                }
                BindingState::Bound => {
                    metrics::affinity_hit();
                    return Ok(BindingLookup::Ready(binding, unreported));
                }
                BindingState::Orphaned => {
                    let loss = why_orphaned(&binding);
                    return Ok(BindingLookup::Lost(binding, loss));
                }
                BindingState::Claimed => claim_wait.wait(self, session, server).await?,
            }
        }
    }

    /// One ROUTE.
    async fn route(&self, session: &Session, server: &Server) -> Result<RouteReply, StoreError> {
        let request = RouteRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            worker: self.worker().clone(),
        };
        let routed = self.store().route(&session.key, &request).await?;
        Ok(self.noted(session, server, routed))
    }

    /// The first use after the death of the worker that drove the binding is logged and counted.
    fn noted(&self, session: &Session, server: &Server, routed: RouteReply) -> RouteReply {
        if let Some(lost) = &routed.worker_lost {
            metrics::affinity_rebind("worker");
            tracing::info!(
                session = %session.digest,
                server = %server.id,
                from = %lost.worker,
                to = %self.worker(),
                reason = "worker",
                "the worker that drove this session is dead; this one continues it"
            );
        }
        routed
    }

    /// Binds a server that the session has not used yet. None where another attempt won: its result is adopted.
    async fn bind_anew(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<Option<BindingView>, ResolveError> {
        let Some(claim) = self.claim_first(session, server).await? else {
            return Ok(None);
        };
        self.establish_from_record(session, server, claim).await
    }

    /// Moves a binding away from where it was lost; the state it had upstream is gone, unless the claim that lapsed
    /// had none yet.
    async fn move_from(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        loss: Loss,
        report: LossReport,
    ) -> Result<ResolvedBinding, ResolveError> {
        let resolved = Box::pin(self.recover(session, server, binding, loss, report)).await?;
        // Taking over a lapsed claim counts as a rebind itself, so the first one lost nothing. ROUTE does not say how
        // often a binding was moved; the answers to REBIND and CONFIRM do.
        let had_no_state = loss == Loss::ClaimLapsed && resolved.binding.rebinds <= 1;
        Ok(ResolvedBinding {
            moved: resolved.moved.filter(|_| !had_no_state),
            ..resolved
        })
    }
}

/// Nobody renews a claim whose attempt has ended; nobody drives what a dead worker owned.
fn why_orphaned(binding: &BindingView) -> Loss {
    match &binding.owner {
        Some(owner) if !owner.alive => Loss::OwnerDead,
        _ => Loss::ClaimLapsed,
    }
}

/// A reason as the store takes it.
pub(super) fn reason_text(loss: Loss) -> Option<Reason> {
    Reason::parse(loss.as_str().as_bytes()).ok()
}

/// The lease of a claim.
pub(super) fn lease(router: &SessionRouter) -> Millis {
    router.options().claim_lease
}
