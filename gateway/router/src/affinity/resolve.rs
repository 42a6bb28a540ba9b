//! Resolving: from a session and a server to the binding for its calls, as [`mooring_delivery`] decides.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mooring_delivery::{
    Errors, Facts, Instances, Loss, LostBinding, OnLoss, Resolution, ResolveFailure, StateLoss,
};
use mooring_session::Refusal;
use mooring_session::names::{InstanceName, NameError, ServerName};
use mooring_session::rules::{ReportedLoss, RouteReply, RouteRequest, TouchRequest};
use mooring_session::view::{BindingState, BindingView};
use tokio::time::Instant;

use super::resolving::Resolving;
use super::turn::FirstRoute;
use super::{Session, SessionRouter};
use mooring_metrics as metrics;
use mooring_protocol::Rebound;
use mooring_protocol::ids::Epoch;
use mooring_settings::OnUpstreamLoss;
use mooring_store::StoreError;
use mooring_upstream::{
    ExchangeError, HandshakeError, InitializeHandshake, InitializedSession, SendError, Server,
};

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
    pub(crate) fn of(server: &Server, loss: StateLoss) -> Self {
        Self {
            from: server.client_name(&loss.from),
            to: server.client_name(&loss.to),
            epoch: loss.epoch,
            reason: loss.reason,
        }
    }

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

/// The errors of the router as a driver.
#[derive(Debug)]
pub(crate) struct RouterErrors;

impl Errors for RouterErrors {
    type Store = StoreError;
    type Handshake = HandshakeError;
    type Send = SendError;
    type Answer = ExchangeError;

    fn refusal(error: &StoreError) -> Option<&Refusal> {
        match error {
            StoreError::Refused(refusal) => Some(refusal),
            _ => None,
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
    /// Operators have parked every instance of the server, which therefore gets no new sessions. Nothing ran.
    #[error("an operator has parked the server: it gets no new sessions until it is unparked")]
    Parked,
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
    Name(#[from] NameError),
}

impl From<ResolveFailure<RouterErrors>> for ResolveError {
    fn from(failure: ResolveFailure<RouterErrors>) -> Self {
        match failure {
            ResolveFailure::Store(error) => Self::Store(error),
            ResolveFailure::NoInstance(error) => {
                metrics::affinity_failure("no_instance");
                Self::NoInstance(error)
            }
            ResolveFailure::Parked => Self::Parked,
            ResolveFailure::Handshake(error) => Self::Handshake(error),
            ResolveFailure::ParamsGone => Self::ParamsGone,
            // The latter only for messages without a reply, whose deliveries fail as such.
            ResolveFailure::LostByPolicy | ResolveFailure::Lost => Self::LostByPolicy,
            ResolveFailure::ClaimPending => Self::ClaimPending,
        }
    }
}

/// The instances of a server.
pub(crate) struct ServerInstances<'a>(pub(crate) &'a Server);

impl Instances for ServerInstances<'_> {
    fn contains(&self, name: &InstanceName) -> bool {
        self.0.instance(name).is_some()
    }

    fn move_targets(&self) -> Vec<InstanceName> {
        self.0.move_targets()
    }

    fn candidates(&self) -> Vec<InstanceName> {
        self.0.candidate_names()
    }

    fn has_target_beside(&self, name: &InstanceName) -> bool {
        self.0.has_target_beside(name)
    }
}

/// Whether a route does not say why its orphan has no owner: the attempt to make it has ended, or its owner gave it up.
pub(crate) fn lacks_reason(routed: &RouteReply) -> bool {
    routed.binding.as_ref().is_some_and(|binding| {
        binding.state == BindingState::Orphaned
            && binding.owner.is_none()
            && binding.last_reason.is_none()
    })
}

/// The present moment, for the machines.
pub(crate) fn now() -> std::time::Instant {
    Instant::now().into_std()
}

impl SessionRouter {
    /// What the machines need to know of a session and a server.
    pub(crate) fn facts<'a>(
        &'a self,
        session: &'a Session,
        server: &'a Server,
        instances: &'a (dyn Instances + Sync),
    ) -> Facts<'a> {
        Facts {
            principal: &session.principal,
            server: &server.id,
            instances,
            ownership: server.ownership,
            ends_on_loss: server.on_upstream_loss == OnUpstreamLoss::Fail,
            worker: self.worker(),
            claim_lease: self.options().claim_lease,
            answer_timeout: self.options().answer_timeout,
        }
    }

    /// The binding for the session's calls to `server`; creates, adopts or moves it if needed.
    pub(super) async fn resolve_binding(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<BindingView, ResolveError> {
        let mut resolving = Resolving::default();
        let resolution = Resolution::resolve(OnLoss::Recover);
        let resolved = resolving.run(self, session, server, resolution).await?;
        Ok(resolved.binding)
    }

    /// Moves the lost binding, or adopts it if another gateway has moved it.
    pub(super) async fn recover(
        &self,
        session: &Session,
        server: &Server,
        lost: &BindingView,
        loss: Loss,
    ) -> Result<(), ResolveError> {
        let instances = ServerInstances(server);
        let facts = self.facts(session, server, &instances);
        let resolution = Resolution::recover(LostBinding::new(lost, loss), OnLoss::Recover, &facts);
        let mut resolving = Resolving::default();
        let resolved = resolving.run(self, session, server, resolution).await;
        resolved.map(|_| ())
    }

    /// The first binding of a session at a server, by this handshake of its client.
    pub(super) async fn open_binding(
        &self,
        session: &Session,
        server: &Server,
        handshake: InitializeHandshake,
    ) -> Result<(BindingView, InitializedSession), ResolveError> {
        let mut resolving = Resolving::with_handshake(handshake);
        let resolution = Resolution::open();
        let resolved = resolving.run(self, session, server, resolution).await?;
        let initialized = resolving
            .into_initialized()
            .ok_or(ResolveError::ClaimPending)?;
        Ok((resolved.binding, initialized))
    }

    /// Asks the store for a route. Logs and counts the takeover of a binding from a dead gateway, which the store reports
    /// once.
    pub(crate) async fn route(
        &self,
        session: &Session,
        request: &RouteRequest,
    ) -> Result<RouteReply, StoreError> {
        let mut routed = self.store().route(&session.key, request).await?;
        self.record_takeover(session, &request.server, &routed);
        if lacks_reason(&routed) {
            Box::pin(self.read_reason(session, &mut routed)).await;
        }
        Ok(routed)
    }

    /// Reads from the record why a binding was given up. If that fails, it counts as a claim that lapsed.
    pub(crate) async fn read_reason(&self, session: &Session, routed: &mut RouteReply) {
        let (Some(binding), Ok(record)) =
            (&mut routed.binding, self.store().get(&session.key).await)
        else {
            return;
        };
        let mut bindings = record.bindings.into_iter();
        let is_same =
            |other: &BindingView| other.server == binding.server && other.epoch == binding.epoch;
        binding.last_reason = bindings.find(is_same).and_then(|other| other.last_reason);
    }

    /// The route of a message: one that is known to be true, or else the store's. Not for a message whose former attempt
    /// failed.
    pub(crate) async fn first_route(
        &self,
        session: &Session,
        request: &RouteRequest,
    ) -> Result<RouteReply, StoreError> {
        let key = (session.key.clone(), request.server.clone());
        match self.delegations().route(&key, &request.principal) {
            FirstRoute::Known(routed) => Ok(routed),
            FirstRoute::Ask => self.route(session, request).await,
            FirstRoute::AskDelegation(lease, asked_at) => {
                let delegated = self.store().delegate_route(&key.0, request, lease).await?;
                self.record_takeover(session, &request.server, &delegated.routed);
                (self.delegations()).note_route(&key, request, asked_at, &delegated);
                Ok(delegated.routed)
            }
        }
    }

    pub(crate) fn record_takeover(
        &self,
        session: &Session,
        server: &ServerName,
        routed: &RouteReply,
    ) {
        if let Some(lost) = &routed.worker_lost {
            metrics::affinity_rebind("worker");
            tracing::info!(
                session = %session.digest,
                %server,
                from = %lost.worker,
                to = %self.worker(),
                reason = "worker",
                "the worker that drove this session is dead; this one continues it"
            );
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
}
