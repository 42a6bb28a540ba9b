//! Moves a session's binding away from where it is, because an operator wants it.
//!
//! Invariants: it moves like a lost binding, by the same fenced commands, so the client's next result says that state was
//! lost; the owner of a connection moves it itself; no call runs meanwhile unless it is forced, because the move takes the
//! session's turn.

use std::sync::Arc;

use std::time::Duration;

use mooring_delivery::{Instances, Loss, LostBinding, OnLoss, Resolution};
use mooring_session::names::{InstanceName, Principal, ServerName};
use mooring_session::record::SessionState;
use mooring_session::refusal::Refusal;
use mooring_session::view::{BindingState, BindingView, OwnerView};
use serde::Serialize;

use super::resolving::Resolving;
use super::{ResolveError, Session, SessionRouter, TurnError};
use crate::departure::DeparturePhase;
use mooring_settings::{Concurrency, OnUpstreamLoss};
use mooring_store::{SessionKey, StoreError};
use mooring_upstream::{SendError, Server};

/// How long a move waits for the call that runs.
const TURN_WITHIN: Duration = Duration::from_secs(2);

/// Which binding to move.
#[derive(Clone, Copy, Debug)]
pub struct MoveRequest<'a> {
    /// The session.
    pub key: &'a SessionKey,
    /// The server at which it is bound.
    pub server: &'a ServerName,
    /// The instance to move to; none for any other one that is not parked.
    pub to: Option<&'a InstanceName>,
}

/// Whether a move waits for the call that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveTiming {
    /// It does, for a moment, and is refused if the call still runs then.
    BetweenCalls,
    /// It does not. The call may be cut off.
    AtOnce,
}

/// What a move would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovePreview {
    /// The server.
    pub server: Box<str>,
    /// The instance that it leaves.
    pub from: Box<str>,
    /// The instances of which it gets one.
    pub to: Vec<Box<str>>,
    /// The gateway that has its connection, if only one can.
    pub owner: Option<Box<str>>,
    /// Whether the session loses what the instance keeps for it.
    pub state_lost: bool,
    /// Whether the client's session ends, by the server's `on_upstream_loss`.
    pub ends_session: bool,
}

/// A move that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedBinding {
    /// The instance that it has left.
    pub from: Box<str>,
    /// The instance that it has now; none if the client's session ended.
    pub to: Option<Box<str>>,
    /// The epoch of the binding.
    pub epoch: u64,
}

/// Why a binding was not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// No server of the settings has this name, or it has no bindings.
    #[error("no upstream server has the name {0}")]
    UnknownServer(ServerName),
    /// The server has no such instance.
    #[error("the server has no instance {0}")]
    UnknownInstance(InstanceName),
    /// The session is unknown, or has ended.
    #[error("the session is unknown or has ended")]
    NoSession,
    /// The session has no binding there that can be moved now.
    #[error("the session has no binding at the server, or one that is being made")]
    NotBound,
    /// It is there already.
    #[error("the binding is at this instance already")]
    SameInstance,
    /// There is no other instance that is not parked.
    #[error("the server has no other instance that is not parked")]
    NoTarget,
    /// A call of the session runs.
    #[error("a call of the session runs: try again, or force it, which may cut the call off")]
    Busy(#[source] TurnError),
    /// A call of the session runs, at a server whose calls take no turns.
    #[error("a call of the session runs: try again, or force it, which may cut the call off")]
    InCall,
    /// Another gateway has moved it meanwhile.
    #[error("another gateway has moved the binding meanwhile")]
    Superseded,
    /// The gateway that has its connection did not do it.
    #[error("the gateway that has the connection did not move it: {0}")]
    Owner(#[source] SendError),
    /// The new instance was not initialized, or the store failed. Then the session's next call initializes one.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

impl From<StoreError> for MoveError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(Refusal::NoSession | Refusal::Ended) => Self::NoSession,
            error => Self::Resolve(ResolveError::Store(error)),
        }
    }
}

/// A binding, and where it may go.
struct MovePlan {
    principal: Principal,
    binding: BindingView,
    targets: Vec<InstanceName>,
}

/// The instances of a move.
pub(super) struct MoveTargets<'a> {
    pub(super) server: &'a Server,
    pub(super) targets: Vec<InstanceName>,
}

impl Instances for MoveTargets<'_> {
    fn contains(&self, name: &InstanceName) -> bool {
        self.server.instance(name).is_some()
    }

    fn move_targets(&self) -> Vec<InstanceName> {
        self.targets.clone()
    }

    fn candidates(&self) -> Vec<InstanceName> {
        self.targets.clone()
    }

    fn has_target_beside(&self, name: &InstanceName) -> bool {
        self.targets.iter().any(|target| target != name)
    }
}

impl SessionRouter {
    /// What moving this binding would do. Changes nothing, and counts as no use.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn preview_move(&self, request: MoveRequest<'_>) -> Result<MovePreview, MoveError> {
        let server = &*self.moved_server(request.server)?;
        let MovePlan {
            binding, targets, ..
        } = self.plan_move(server, request).await?;
        let text = |name: &InstanceName| -> Box<str> { name.as_str().into() };
        Ok(MovePreview {
            server: server.id.as_str().into(),
            from: text(&binding.instance),
            to: targets.iter().map(text).collect(),
            state_lost: binding.owner.is_some() || binding.upstream_session.is_some(),
            owner: binding.owner.map(|owner| owner.worker.as_str().into()),
            ends_session: server.on_upstream_loss == OnUpstreamLoss::Fail,
        })
    }

    /// Moves a binding, and initializes the session at its new instance.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn move_binding(
        &self,
        request: MoveRequest<'_>,
        timing: MoveTiming,
    ) -> Result<MovedBinding, MoveError> {
        let server = &*self.moved_server(request.server)?;
        let mut plan = self.plan_move(server, request).await?;
        let mut _turn = None;
        if timing == MoveTiming::BetweenCalls && server.concurrency == Concurrency::Serial {
            let taking = self.take_turn(request.key, &plan.principal, &server.id, TURN_WITHIN);
            _turn = Some(taking.await.map_err(MoveError::Busy)?);
            // It may have been moved before the turn came.
            plan = self.plan_move(server, request).await?;
        }
        if timing == MoveTiming::BetweenCalls
            && self
                .active_bindings()
                .is_in_call(request.key, std::iter::once(server.id.clone()))
        {
            return Err(MoveError::InCall);
        }
        let MovePlan {
            principal,
            binding,
            targets,
        } = plan;
        let id = (request.key.id().cloned()).ok_or(MoveError::NoSession)?;
        let session = Session::new(request.key.clone(), id, principal);
        match binding
            .owner
            .as_ref()
            .filter(|owner| self.is_elsewhere(owner))
        {
            Some(owner) => {
                self.move_at_owner(owner, &session, server, binding.epoch, request.to)
                    .await
                    .map_err(MoveError::Owner)?;
                // An owner that drains has only given it up.
                self.resolve_binding(&session, server).await?;
            }
            None if binding.owner.is_some()
                && self.departure().phase() == DeparturePhase::Draining =>
            {
                self.give_up_to_peer(&session, server, binding.epoch)
                    .await?;
            }
            None => self.move_here(&session, server, &binding, targets).await?,
        }
        self.moved_from(request.key, server, binding).await
    }

    /// Moves a binding of this gateway, or one that every gateway can reach.
    pub(super) async fn move_here(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        targets: Vec<InstanceName>,
    ) -> Result<(), ResolveError> {
        let instances = MoveTargets { server, targets };
        let lost = LostBinding::new(binding, Loss::MovedByOperator);
        let facts = self.facts(session, server, &instances);
        let resolution = Resolution::recover(lost, OnLoss::Recover, &facts);
        let mut resolving = Resolving::default();
        let moving = resolving.run_among(self, session, server, &instances, resolution);
        match moving.await {
            // By the policy of the server: the client initializes again.
            Ok(_) | Err(ResolveError::LostByPolicy) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn moved_server(&self, name: &ServerName) -> Result<Arc<Server>, MoveError> {
        let server = self.servers().get(name.as_str()).cloned();
        server.ok_or_else(|| MoveError::UnknownServer(name.clone()))
    }

    fn is_elsewhere(&self, owner: &OwnerView) -> bool {
        owner.alive && !self.is_owner(owner)
    }

    async fn plan_move(
        &self,
        server: &Server,
        request: MoveRequest<'_>,
    ) -> Result<MovePlan, MoveError> {
        let record = self.store().get(request.key).await?;
        if record.state != SessionState::Active {
            return Err(MoveError::NoSession);
        }
        let mut bindings = record.bindings.into_iter();
        let binding = bindings.find(|binding| binding.server == server.id);
        let binding = binding.filter(|binding| binding.state != BindingState::Claimed);
        let binding = binding.ok_or(MoveError::NotBound)?;
        Ok(MovePlan {
            targets: targets(server, &binding, request.to)?,
            principal: record.principal,
            binding,
        })
    }

    /// What became of the binding.
    async fn moved_from(
        &self,
        key: &SessionKey,
        server: &Server,
        before: BindingView,
    ) -> Result<MovedBinding, MoveError> {
        let from = before.instance.as_str().into();
        let record = self.store().get(key).await?;
        if record.state != SessionState::Active {
            return Ok(MovedBinding {
                from,
                to: None,
                epoch: before.epoch,
            });
        }
        let mut bindings = record.bindings.into_iter();
        let after = bindings.find(|binding| binding.server == server.id);
        match after.filter(|after| after.epoch != before.epoch) {
            Some(after) => Ok(MovedBinding {
                from,
                to: Some(after.instance.as_str().into()),
                epoch: after.epoch,
            }),
            None => Err(MoveError::Superseded),
        }
    }
}

/// Where a binding may move: to the named instance, even if it is parked, or to any other that is not. A connection that
/// only one gateway has is made anew at the same place if there is no other.
pub(super) fn targets(
    server: &Server,
    binding: &BindingView,
    to: Option<&InstanceName>,
) -> Result<Vec<InstanceName>, MoveError> {
    if let Some(to) = to {
        if server.instance(to).is_none() {
            return Err(MoveError::UnknownInstance(to.clone()));
        }
        if *to == binding.instance && binding.owner.is_none() {
            return Err(MoveError::SameInstance);
        }
        return Ok(vec![to.clone()]);
    }
    let mut targets = server.move_targets();
    targets.retain(|target| *target != binding.instance);
    match (targets.is_empty(), &binding.owner) {
        (false, _) => Ok(targets),
        (true, Some(_)) => Ok(vec![binding.instance.clone()]),
        (true, None) => Err(MoveError::NoTarget),
    }
}
