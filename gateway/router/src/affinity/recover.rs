//! Recovering: an upstream session was lost. One of the gateways that notice creates a new one, and the others adopt
//! it.

use std::sync::Arc;

use mooring_session::Refusal;
use mooring_session::names::InstanceName;
use mooring_session::rules::{LossReport, Ownership, RebindRequest};
use mooring_session::view::BindingView;
use tokio::task::JoinSet;

use super::establish::Claim;
use super::resolve::{ResolveError, ResolvedBinding, lease, reason_text};
use super::{Session, SessionRouter, caller_of};
use mooring_metrics as metrics;
use mooring_settings::OnUpstreamLoss;
use mooring_store::{StoreError, fresh_token};
use mooring_upstream::{
    ExchangeError, Outgoing, ProbeResult, SendError, Server, discard, probe, read_answer, within,
};
use mooring_usage::for_same_user;

/// Most instances that are probed.
const ASKED_MAX: usize = 8;

/// How a binding was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The instance refuses connections.
    InstanceRefuses,
    /// Connects to the instance time out: its host may have vanished.
    InstanceUnreachable,
    /// The instance answers and does not know the session.
    SessionUnknown,
    /// The instance is no longer configured.
    InstanceRemoved,
    /// The attempt to initialize it did not finish.
    ClaimLapsed,
    /// The gateway that owned its connection is dead.
    OwnerDead,
    /// The gateway that owned its connection has stopped in order.
    OwnerStopped,
    /// Its owned connection has ended: the server's process exited, or its stream broke.
    ConnectionEnded,
}

impl Loss {
    /// The text in logs, records and rebind notices.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InstanceRefuses => "upstream instance refuses connections",
            Self::InstanceUnreachable => "upstream instance cannot be reached",
            Self::SessionUnknown => "upstream session unknown to its instance",
            Self::InstanceRemoved => "upstream instance not configured any more",
            Self::ClaimLapsed => "initialization not finished",
            Self::OwnerDead => "the worker that held the connection is dead",
            Self::OwnerStopped => "the worker that held the connection was stopped",
            Self::ConnectionEnded => "the connection to the server ended",
        }
    }

    /// The label in `session_affinity_rebinds_total`.
    const fn label(self) -> &'static str {
        match self {
            Self::OwnerDead => "owner",
            Self::OwnerStopped => "drain",
            Self::InstanceRefuses
            | Self::InstanceUnreachable
            | Self::SessionUnknown
            | Self::InstanceRemoved
            | Self::ClaimLapsed
            | Self::ConnectionEnded => "upstream",
        }
    }
}

impl SessionRouter {
    /// Asks the binding's instance, over a new connection, whether the upstream session still exists.
    pub async fn probe(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
    ) -> ProbeResult {
        let ping = mooring_protocol::call::ping(&self.next_id());
        let outgoing = Outgoing::post(server, ping.into())
            .on_behalf_of(server, &caller_of(session))
            .upstream_session(binding.upstream_session.as_ref());
        if server.ownership == Ownership::Owned {
            return self.probe_owned(session, server, binding, &outgoing).await;
        }
        let Some(instance) = server.instance(&binding.instance) else {
            return ProbeResult::InstanceLost;
        };
        probe(
            self.client(),
            instance,
            &outgoing,
            self.options().answer_timeout,
        )
        .await
    }

    /// The same for an owned connection.
    async fn probe_owned(
        &self,
        session: &Session,
        server: &Server,
        binding: &BindingView,
        ping: &Outgoing,
    ) -> ProbeResult {
        let exchange = async {
            let reply = self.send(session, server, binding, ping).await?;
            read_answer(reply, ping, &self.reply_source(server, binding)).await
        };
        match within(self.options().answer_timeout, exchange).await {
            Ok(_) => ProbeResult::Alive,
            Err(ExchangeError::Send(SendError::Ended(_) | SendError::Elsewhere)) => {
                ProbeResult::SessionLost
            }
            Err(ExchangeError::Send(SendError::OwnerUnavailable(_))) => ProbeResult::InstanceLost,
            Err(_) => ProbeResult::Unclear,
        }
    }

    /// Whether another instance of the server answers. If none does, the fault may be in this gateway's network, and
    /// moving the session would lose its state for nothing.
    pub async fn another_instance_answers(&self, server: &Server, lost: &InstanceName) -> bool {
        let others = (server.instances.iter()).filter(|instance| instance.name != *lost);
        let mut asking = JoinSet::new();
        for instance in others.take(ASKED_MAX) {
            let ping = Outgoing::post(server, mooring_protocol::call::ping(&self.next_id()).into());
            let (client, instance) = (self.client().clone(), Arc::clone(instance));
            let limit = self.options().answer_timeout;
            asking.spawn(for_same_user(async move {
                let exchange = async { Ok(client.send_fresh(&instance, &ping).await?.status) };
                within(limit, exchange).await.is_ok()
            }));
        }
        while let Some(does_answer) = asking.join_next().await {
            if does_answer.unwrap_or(false) {
                return true;
            }
        }
        false
    }

    /// Moves the lost binding, or adopts it if another gateway has moved it. If the owner is alive, it renews its own
    /// connection. The record keeps the loss until the result of a tool has reported it: the caller may have no reply
    /// that can, or its reply may be lost.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn recover(
        &self,
        session: &Session,
        server: &Server,
        lost: &BindingView,
        loss: Loss,
    ) -> Result<ResolvedBinding, ResolveError> {
        if server.on_upstream_loss == OnUpstreamLoss::Fail && loss != Loss::ClaimLapsed {
            self.close_lost(session).await;
            return Err(ResolveError::LostByPolicy);
        }
        if let Some(owner) = &lost.owner
            && owner.alive
            && !self.is_owner(owner)
        {
            self.renew_at_owner(owner, session, server, lost.epoch)
                .await;
            return self.adopt(session, server, lost, loss).await;
        }
        let token = fresh_token()?;
        let request = RebindRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            epoch: lost.epoch,
            worker: self.worker().clone(),
            token: token.clone(),
            lease: lease(self),
            instances: server.instance_names(),
            avoid: matches!(loss, Loss::InstanceRefuses | Loss::InstanceUnreachable)
                .then(|| lost.instance.clone()),
            reason: reason_text(loss),
            upstream_session: None,
            ownership: server.ownership,
            report: LossReport::ByNextCall,
        };
        let rebound = match self.store().rebind(&session.key, &request).await {
            Ok(rebound) => rebound,
            // A live peer has taken it over meanwhile.
            Err(StoreError::Refused(Refusal::Owned(_))) => {
                return self.adopt(session, server, lost, loss).await;
            }
            Err(error) => return Err(error.into()),
        };
        let mut binding = None;
        if rebound.won {
            let claim = Claim {
                binding: rebound.binding,
                token,
            };
            binding = self.establish_from_record(session, server, claim).await?;
            if let Some(binding) = &binding {
                metrics::affinity_rebind(loss.label());
                tracing::warn!(
                    session = %session.digest,
                    server = %server.id,
                    from = %lost.instance,
                    to = %binding.instance,
                    epoch = binding.epoch,
                    reason = loss.as_str(),
                    "session rebound; the state it had upstream is lost"
                );
            }
            if let (Some(previous), Loss::SessionUnknown) = (rebound.previous, loss)
                && let Some(instance) = server.instance(&lost.instance)
            {
                let (client, instance) = (self.client().clone(), Arc::clone(instance));
                let deletion = Outgoing::delete(server).on_behalf_of(server, &caller_of(session));
                let limit = self.deletion_timeout();
                // Deletes the old session in the background: its instance may not answer.
                tokio::spawn(for_same_user(async move {
                    discard(&client, &instance, &deletion, &previous, limit).await;
                }));
            }
        }
        match binding {
            Some(binding) => Ok(ResolvedBinding::after(server, lost, binding, loss)),
            None => self.adopt(session, server, lost, loss).await,
        }
    }

    /// The binding after another gateway has handled the loss.
    async fn adopt(
        &self,
        session: &Session,
        server: &Server,
        lost: &BindingView,
        loss: Loss,
    ) -> Result<ResolvedBinding, ResolveError> {
        let resolved = Box::pin(self.resolve_binding(session, server)).await?;
        Ok(ResolvedBinding::after(server, lost, resolved.binding, loss))
    }
}
