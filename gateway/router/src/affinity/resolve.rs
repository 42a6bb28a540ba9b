//! Resolving: from a session and a server to the binding for its calls.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use mooring_session::names::{Reason, ServerName};
use mooring_session::rules::{
    ReportedLoss, RouteReply, RouteRequest, TouchRequest, UnreportedLoss,
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

/// First and longest interval of checks of another attempt's claim, if the store reports no events.
const POLL_FIRST: Duration = Duration::from_millis(2);
/// See [`POLL_FIRST`].
const POLL_MAX: Duration = Duration::from_millis(100);
/// The interval if the store reports events: for lost events, and for claims whose lease expires.
const BACKSTOP: Duration = Duration::from_secs(1);

/// A binding that is ready for calls.
#[derive(Clone, Debug)]
pub struct ResolvedBinding {
    /// The binding.
    pub binding: BindingView,
    /// Set if the binding was moved, which lost the upstream's state: while resolving, or before and no result of a tool
    /// has reported it.
    pub moved: Option<RebindNotice>,
}

impl ResolvedBinding {
    /// The binding after a loss. If its epoch has changed, the upstream's state is lost.
    #[must_use]
    pub fn after(server: &Server, lost: &BindingView, binding: BindingView, reason: Loss) -> Self {
        let moved = (binding.epoch != lost.epoch).then(|| RebindNotice {
            from: server.client_name(&lost.instance),
            to: server.client_name(&binding.instance),
            epoch: binding.epoch,
            reason: reason.as_str().into(),
        });
        Self { binding, moved }
    }

    /// A ready binding.
    fn ready(server: &Server, binding: BindingView, unreported: Option<UnreportedLoss>) -> Self {
        let moved = unreported.map(|loss| RebindNotice {
            from: server.client_name(&loss.instance),
            to: server.client_name(&binding.instance),
            epoch: binding.epoch,
            reason: (loss.reason.as_ref())
                .map_or_else(String::new, |reason| reason.as_str().to_owned())
                .into(),
        });
        Self { binding, moved }
    }
}

/// Tells the client that a binding was moved and its upstream state lost. The record has it too, until a result of a tool
/// has reported it: see [`SessionRouter::note_loss_reported`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebindNotice {
    /// The lost instance, by its name for clients.
    pub from: Box<str>,
    /// The new instance, by its name for clients.
    pub to: Box<str>,
    /// Its new epoch.
    pub epoch: u64,
    /// Why it was lost.
    pub reason: Cow<'static, str>,
}

impl RebindNotice {
    /// The notice for the client.
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

/// Why a session has no ready binding.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The store refused or was unreachable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No instance was reachable. Nothing ran.
    #[error("no instance could be reached: {0}")]
    NoInstance(#[source] HandshakeError),
    /// An instance answered the handshake with an error.
    #[error("the instance refused the handshake: {0}")]
    Handshake(#[source] HandshakeError),
    /// The client's initialize params are no longer stored, so the client has to initialize again.
    #[error("the initialize params of the session are gone")]
    ParamsGone,
    /// By the server's policy the client has to initialize again.
    #[error("the upstream session was lost and the server's policy is to fail")]
    LostByPolicy,
    /// Another gateway did not initialize the binding in time.
    #[error("another gateway did not initialize the upstream session in time")]
    ClaimPending,
    /// A name made by the gateway was refused, which is a defect.
    #[error(transparent)]
    Name(#[from] mooring_session::names::NameError),
}

/// The state of a session at a server.
pub(crate) enum BindingLookup {
    /// A binding that carries calls, and a loss that no result of a tool has reported.
    Ready(BindingView, Option<UnreportedLoss>),
    /// A lost binding, and how it was lost.
    Lost(BindingView, Loss),
}

/// Why a route has no usable binding yet.
enum Unready {
    /// The session has not used the server.
    Unbound,
    /// Another attempt makes the binding.
    Claimed,
}

/// The wait of one request for another attempt's claim.
struct ClaimWait {
    ends_at: Instant,
    pause: Duration,
    waiter: Option<Waiter>,
}

impl ClaimWait {
    /// Waits as long as an attempt and its answer may take.
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
            return Err(ResolveError::ClaimPending);
        }
        let waiters = router.waiters();
        match &mut self.waiter {
            // After joining, no event is missed. Events since the last query are found by asking again at once.
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
    /// The binding for the session's calls to `server`; creates, adopts or moves it if needed.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve_binding(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<ResolvedBinding, ResolveError> {
        let found = self.find_binding(session, server, None).await?;
        self.rebind_if_lost(session, server, found).await
    }

    /// The binding that was found, or the one that replaces it if it is lost.
    pub(crate) async fn rebind_if_lost(
        &self,
        session: &Session,
        server: &Server,
        found: BindingLookup,
    ) -> Result<ResolvedBinding, ResolveError> {
        match found {
            BindingLookup::Ready(binding, unreported) => {
                Ok(ResolvedBinding::ready(server, binding, unreported))
            }
            BindingLookup::Lost(binding, loss) => {
                Box::pin(self.rebind_lost(session, server, &binding, loss)).await
            }
        }
    }

    /// Records that the result of a tool has reported the loss. If this fails, the next one reports it again.
    pub async fn note_loss_reported(
        &self,
        session: &Session,
        server: &ServerName,
        moved: &RebindNotice,
    ) {
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
            tracing::info!(session = %session.digest, %server, %error, "failed to record a reported loss; the next result of a tool reports it again");
        }
    }

    /// The session's binding; creates a missing one, and waits for other attempts' claims. `known` is a route that the
    /// store has just returned.
    pub(crate) async fn find_binding(
        &self,
        session: &Session,
        server: &Server,
        known: Option<RouteReply>,
    ) -> Result<BindingLookup, ResolveError> {
        let unready = match known {
            Some(routed) => {
                let routed = self.record_takeover(session, server, routed);
                match look_up(server, routed) {
                    Ok(found) => return Ok(found),
                    Err(unready) => Some(unready),
                }
            }
            None => None,
        };
        // Boxed: a call whose turn came with its route does not wait here.
        Box::pin(self.wait_for_binding(session, server, unready)).await
    }

    async fn wait_for_binding(
        &self,
        session: &Session,
        server: &Server,
        mut unready: Option<Unready>,
    ) -> Result<BindingLookup, ResolveError> {
        let mut claim_wait = ClaimWait::new(self);
        loop {
            match unready {
                Some(Unready::Unbound) => {
                    metrics::affinity_miss();
                    if let Some(binding) = Box::pin(self.bind_first(session, server)).await? {
                        return Ok(BindingLookup::Ready(binding, None));
                    }
                }
                Some(Unready::Claimed) => {
                    Box::pin(claim_wait.wait(self, session, server)).await?;
                }
                None => {}
            }
            match look_up(server, self.route(session, server).await?) {
                Ok(found) => return Ok(found),
                Err(now) => unready = Some(now),
            }
        }
    }

    async fn route(&self, session: &Session, server: &Server) -> Result<RouteReply, StoreError> {
        let request = RouteRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            worker: self.worker().clone(),
        };
        let routed = self.store().route(&session.key, &request).await?;
        Ok(self.record_takeover(session, server, routed))
    }

    /// Logs and counts the takeover of a binding from a dead gateway, which the store reports once.
    fn record_takeover(
        &self,
        session: &Session,
        server: &Server,
        routed: RouteReply,
    ) -> RouteReply {
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

    /// Binds a server that the session has not used yet. `None` if another attempt won, whose result is adopted.
    async fn bind_first(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<Option<BindingView>, ResolveError> {
        let Some(claim) = self.claim_first(session, server).await? else {
            return Ok(None);
        };
        self.establish_from_record(session, server, claim).await
    }

    /// Moves a lost binding. Its upstream state is lost too, unless a claim expired before there was any.
    async fn rebind_lost(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        loss: Loss,
    ) -> Result<ResolvedBinding, ResolveError> {
        let resolved = self.recover(session, server, binding, loss).await?;
        // Taking over an expired claim counts as a rebind itself, so the first one lost nothing. ROUTE does not return
        // the number of rebinds; REBIND and CONFIRM do.
        let had_no_state = loss == Loss::ClaimLapsed && resolved.binding.rebinds <= 1;
        Ok(ResolvedBinding {
            moved: resolved.moved.filter(|_| !had_no_state),
            ..resolved
        })
    }
}

/// Reads the binding from a route.
fn look_up(server: &Server, routed: RouteReply) -> Result<BindingLookup, Unready> {
    let binding = routed.binding.ok_or(Unready::Unbound)?;
    match binding.state {
        BindingState::Bound if server.instance(&binding.instance).is_none() => {
            Ok(BindingLookup::Lost(binding, Loss::InstanceRemoved))
        }
        BindingState::Bound => {
            metrics::affinity_hit();
            Ok(BindingLookup::Ready(binding, routed.unreported_loss))
        }
        BindingState::Orphaned => {
            let loss = orphan_loss(&binding);
            Ok(BindingLookup::Lost(binding, loss))
        }
        BindingState::Claimed => Err(Unready::Claimed),
    }
}

/// Why a binding is orphaned: its owner is dead, or the attempt that claimed it has ended.
fn orphan_loss(binding: &BindingView) -> Loss {
    match &binding.owner {
        Some(owner) if !owner.alive => Loss::OwnerDead,
        _ => Loss::ClaimLapsed,
    }
}

/// The loss as REBIND takes it.
pub(super) fn reason_text(loss: Loss) -> Option<Reason> {
    Reason::parse(loss.as_str().as_bytes()).ok()
}

/// The lease of a claim.
pub(super) fn lease(router: &SessionRouter) -> Millis {
    router.options().claim_lease
}
