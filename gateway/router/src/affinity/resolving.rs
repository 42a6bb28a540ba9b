//! Performs the tasks of a resolution: commands to the store, handshakes and deletions upstream, and waits. Decides
//! nothing.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mooring_delivery::{
    Claim, InitializeFailure, Instances, Loss, LostBinding, Resolution, ResolveFailure,
    ResolvedBinding, Task, TaskOutcome,
};
use mooring_session::Refusal;
use mooring_session::names::{InstanceName, NameError, UpstreamSession};
use mooring_session::refusal::{Busy, Stale};
use mooring_session::rules::{RebindReply, RebindRequest};
use mooring_session::view::BindingView;

use super::resolve::{ResolveError, RouterErrors, ServerInstances, now};
use super::restored_state::RestoredState;
use super::wake_ups::Waiter;
use super::{Session, SessionRouter, caller_of};
use mooring_metrics as metrics;
use mooring_store::{EndCause, StoreError, fresh_token};
use mooring_traces::{Span, SpanKind, TraceScope, attribute, in_scope};
use mooring_upstream::{InitializeHandshake, InitializedSession, Outgoing, Server, discard};
use mooring_usage::for_same_user;

/// What the driver of one resolution keeps between its tasks.
pub(crate) struct Resolving {
    /// The handshake of the session's client, and what to restore after it. Read from the record unless it is given.
    handshake: Option<(InitializeHandshake, RestoredState)>,
    /// The upstream session that was initialized last.
    initialized: Option<InitializedSession>,
    waiter: Option<Waiter>,
    /// The resolution, with a link to what last used a binding that it moves.
    span: Span,
}

impl Default for Resolving {
    fn default() -> Self {
        Self {
            handshake: None,
            initialized: None,
            waiter: None,
            span: Span::begin("resolve binding", SpanKind::Internal),
        }
    }
}

impl Resolving {
    /// With the handshake of a client that has just sent it.
    pub(super) fn with_handshake(handshake: InitializeHandshake) -> Self {
        Self {
            handshake: Some((handshake, RestoredState::default())),
            ..Self::default()
        }
    }

    /// The upstream session that was initialized last.
    pub(super) fn into_initialized(self) -> Option<InitializedSession> {
        self.initialized
    }

    /// Performs tasks until the resolution has a result.
    pub(super) async fn run(
        &mut self,
        router: &SessionRouter,
        session: &Session,
        server: &Server,
        resolution: Resolution<RouterErrors>,
    ) -> Result<ResolvedBinding, ResolveError> {
        let instances = ServerInstances(server);
        self.run_among(router, session, server, &instances, resolution)
            .await
    }

    /// The same among these instances of the server.
    pub(super) async fn run_among(
        &mut self,
        router: &SessionRouter,
        session: &Session,
        server: &Server,
        instances: &(dyn Instances + Sync),
        mut resolution: Resolution<RouterErrors>,
    ) -> Result<ResolvedBinding, ResolveError> {
        let facts = router.facts(session, server, instances);
        loop {
            if let Some(result) = resolution.take_result() {
                return Ok(result?);
            }
            let task = resolution.task(&facts).ok_or(ResolveError::ClaimPending)?;
            let outcome = self.perform_traced(router, session, server, task).await?;
            resolution.handle(outcome, &facts, now());
        }
    }

    /// Performs one task, as part of the resolution's span.
    ///
    /// # Errors
    /// Never in practice: no token was drawn.
    pub(crate) fn perform_traced<'a>(
        &'a mut self,
        router: &'a SessionRouter,
        session: &'a Session,
        server: &'a Server,
        task: Task<'a>,
    ) -> BoxFuture<'a, Result<TaskOutcome<RouterErrors>, NameError>> {
        let scope = self.span.scope().or_else(TraceScope::current);
        in_scope(scope, self.perform(router, session, server, task)).boxed()
    }

    async fn perform(
        &mut self,
        router: &SessionRouter,
        session: &Session,
        server: &Server,
        task: Task<'_>,
    ) -> Result<TaskOutcome<RouterErrors>, NameError> {
        let (store, key) = (router.store(), &session.key);
        if changes_binding(&task) {
            router.delegations().recall(key, &server.id);
        }
        match task {
            Task::Route(request) => {
                let routed = router.route(session, &request).await;
                return Ok(TaskOutcome::Routed(routed));
            }
            Task::Bind(request) => {
                metrics::affinity_miss();
                return Ok(TaskOutcome::Bound(store.bind(key, &request).await));
            }
            Task::Rebind(request) => {
                let mut rebound = self.rebind(router, session, &request).await;
                if matches!(
                    rebound,
                    Err(StoreError::Refused(Refusal::Busy(Busy::Draining)))
                ) && router.move_to_peer(session, server, request.epoch).await
                {
                    // Another gateway has moved it.
                    rebound = Err(StoreError::Refused(Refusal::Stale(Stale::Binding)));
                }
                return Ok(TaskOutcome::Rebound(rebound));
            }
            Task::Confirm(request) => {
                let confirmed = store.confirm(key, &request).await;
                if confirmed.is_ok() {
                    self.span.note_count(attribute::EPOCH, request.epoch);
                    router.waiters().note_binding(key, &server.id);
                }
                return Ok(TaskOutcome::Confirmed(confirmed));
            }
            Task::Unbind(request) => {
                note_dropped(session, store.unbind(key, &request).await);
            }
            Task::LetLapse(request) => {
                note_dropped(session, store.bind(key, &request).await);
            }
            Task::WatchClaim => {
                self.waiter = Some(router.waiters().join(key, &server.id));
                return Ok(woken(router));
            }
            Task::AwaitClaim(at_most) => {
                if let Some(waiter) = &mut self.waiter {
                    waiter.woken(at_most).await;
                }
                return Ok(woken(router));
            }
            Task::DrawToken => return Ok(TaskOutcome::Drawn(fresh_token()?)),
            Task::Initialize(claim) => {
                let initialized = self.initialize(router, session, server, claim).await;
                return Ok(TaskOutcome::Initialized(initialized));
            }
            Task::Restore { binding, lost } => {
                self.restore(router, session, server, binding).await;
                router.note_binding(session, binding, lost);
                if let Some(lost) = lost {
                    note_rebound(session, binding, lost);
                }
            }
            Task::DiscardNew(claim) => {
                let upstream_session =
                    (self.initialized.take()).and_then(|initialized| initialized.upstream_session);
                router
                    .discard_claimed(session, server, claim, upstream_session)
                    .await;
            }
            Task::DiscardPrevious {
                instance,
                upstream_session,
            } => router.discard_in_background(session, server, instance, upstream_session),
            Task::RenewAtOwner(lost) => {
                if let Some(owner) = &lost.owner {
                    router
                        .renew_at_owner(owner, session, server, lost.epoch)
                        .await;
                }
            }
            Task::EndSession => router.close_lost(session, EndCause::StateLost).await,
        }
        Ok(TaskOutcome::Done)
    }

    async fn rebind(
        &mut self,
        router: &SessionRouter,
        session: &Session,
        request: &RebindRequest,
    ) -> Result<RebindReply, StoreError> {
        let span = &mut self.span;
        router.link_last_use(session, &request.server, request.epoch, span);
        span.note_count(attribute::EPOCH_FROM, request.epoch);
        if let Some(reason) = &request.reason {
            span.note_text(attribute::REBIND_REASON, reason.as_str());
        }
        let rebound = router.store().rebind(&session.key, request).await;
        if let Ok(reply) = &rebound {
            span.note_count(attribute::EPOCH_TO, reply.binding.epoch);
        }
        rebound
    }

    async fn initialize(
        &mut self,
        router: &SessionRouter,
        session: &Session,
        server: &Server,
        claim: &Claim,
    ) -> Result<Option<UpstreamSession>, InitializeFailure<RouterErrors>> {
        if self.handshake.is_none() {
            let stored = router.stored_handshake(session, server).await;
            self.handshake = Some(stored.map_err(InitializeFailure::Unprepared)?);
        }
        let Some((handshake, _)) = &self.handshake else {
            return Err(InitializeFailure::Unprepared(ResolveFailure::ParamsGone));
        };
        let initialized = router.initialize_claimed(session, server, claim, handshake);
        match initialized.await {
            Ok(initialized) => {
                let upstream_session = initialized.upstream_session.clone();
                self.initialized = Some(initialized);
                Ok(upstream_session)
            }
            Err(error) => {
                tracing::warn!(
                    session = %session.digest,
                    server = %server.id,
                    instance = %claim.binding.instance,
                    %error,
                    "failed to initialize an instance"
                );
                Err(match error.should_try_another_instance() {
                    true => InitializeFailure::Unanswered(error),
                    false => InitializeFailure::Refused(error),
                })
            }
        }
    }

    async fn restore(
        &self,
        router: &SessionRouter,
        session: &Session,
        server: &Server,
        binding: &BindingView,
    ) {
        if let (Some((_, state)), Some(initialized)) = (&self.handshake, &self.initialized) {
            router
                .restore(session, server, binding, initialized, state)
                .await;
        }
    }
}

/// Whether the session's calls may have to go elsewhere after this task.
const fn changes_binding(task: &Task<'_>) -> bool {
    matches!(
        task,
        Task::Bind(_) | Task::Rebind(_) | Task::Unbind(_) | Task::LetLapse(_)
    )
}

impl SessionRouter {
    /// Deletes the upstream session that a lost binding had. Its instance may not answer.
    fn discard_in_background(
        &self,
        session: &Session,
        server: &Server,
        instance: &InstanceName,
        upstream_session: &UpstreamSession,
    ) {
        let Some(instance) = server.instance(instance) else {
            return;
        };
        let (client, instance) = (self.client().clone(), Arc::clone(instance));
        let deletion = Outgoing::delete(server).on_behalf_of(server, &caller_of(session));
        let (limit, previous) = (self.deletion_timeout(), upstream_session.clone());
        tokio::spawn(for_same_user(async move {
            discard(&client, &instance, &deletion, &previous, limit).await;
        }));
    }
}

fn woken(router: &SessionRouter) -> TaskOutcome<RouterErrors> {
    TaskOutcome::Woken {
        receives_events: router.waiters().receives_events(),
    }
}

fn note_dropped<T>(session: &Session, dropped: Result<T, StoreError>) {
    if let Err(error) = dropped {
        tracing::debug!(session = %session.digest, %error, "failed to drop a claim");
    }
}

fn note_rebound(session: &Session, binding: &BindingView, lost: &LostBinding) {
    metrics::affinity_rebind(match lost.loss {
        Loss::OwnerDead => "owner",
        Loss::OwnerStopped | Loss::OwnerDrained => "drain",
        Loss::MovedByOperator => "operator",
        Loss::InstanceRefuses
        | Loss::InstanceUnreachable
        | Loss::SessionUnknown
        | Loss::InstanceRemoved
        | Loss::ClaimLapsed
        | Loss::ConnectionEnded => "upstream",
    });
    tracing::warn!(
        session = %session.digest,
        server = %binding.server,
        from = %lost.instance,
        to = %binding.instance,
        epoch = binding.epoch,
        reason = lost.loss.as_str(),
        "session rebound; the state it had upstream is lost"
    );
}
