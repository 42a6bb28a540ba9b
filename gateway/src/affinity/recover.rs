//! Recovering: an upstream session was lost. Of all who see it, one makes the new one; the others adopt it.

use std::sync::Arc;

use mooring_session::rules::{Ownership, Rebind};
use mooring_session::view::BindingView;

use super::establish::Claim;
use super::settle::{Moved, SettleError, Settled, lease, reason_text};
use super::{Affinity, Session};
use crate::metrics;
use crate::settings::OnUpstreamLoss;
use crate::upstream::{Outgoing, Pulse, Server, discard, probe};

/// How a binding was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The instance refuses connections.
    InstanceRefuses,
    /// The instance answers and does not know the session.
    SessionUnknown,
    /// The instance is not configured any more.
    InstanceRemoved,
    /// The attempt that was to initialise it did not finish.
    ClaimLapsed,
}

impl Loss {
    /// What logs, records and the client's mark say.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InstanceRefuses => "upstream instance refuses connections",
            Self::SessionUnknown => "upstream session unknown to its instance",
            Self::InstanceRemoved => "upstream instance not configured any more",
            Self::ClaimLapsed => "initialisation not finished",
        }
    }
}

impl Affinity {
    /// Asks the binding's instance, over a connection of its own, whether the upstream session is still there.
    pub async fn pulse(&self, session: &Session, server: &Server, binding: &BindingView) -> Pulse {
        let Some(instance) = server.instance(&binding.instance) else {
            return Pulse::InstanceLost;
        };
        let ping = crate::mcp::call::ping(&self.next_id());
        let outgoing = Outgoing::post(server, ping.into())
            .session_digest(&session.digest)
            .upstream_session(binding.upstream_session.as_ref());
        probe(
            self.client(),
            instance,
            &outgoing,
            self.options().answer_timeout,
        )
        .await
    }

    /// Moves the lost binding, or adopts where another worker has moved it.
    ///
    /// # Errors
    /// See [`SettleError`].
    pub async fn recover(
        &self,
        session: &Session,
        server: &Server,
        lost: &BindingView,
        loss: Loss,
    ) -> Result<Settled, SettleError> {
        if server.on_upstream_loss == OnUpstreamLoss::Fail && loss != Loss::ClaimLapsed {
            self.close_lost(session).await;
            return Err(SettleError::LostByPolicy);
        }
        let token = self.attempt()?;
        let request = Rebind {
            principal: session.principal.clone(),
            server: server.id.clone(),
            epoch: lost.epoch,
            worker: self.worker().clone(),
            token: token.clone(),
            lease: lease(self),
            instances: server.instance_names(),
            avoid: (loss == Loss::InstanceRefuses).then(|| lost.instance.clone()),
            reason: reason_text(loss),
            ownership: Ownership::Shared,
        };
        let rebound = self.store().rebind(&session.key, &request).await?;
        let mut binding = None;
        if rebound.won {
            let claim = Claim {
                binding: rebound.binding,
                token,
            };
            binding = self.renew(session, server, lost, loss, claim).await?;
            if let (Some(previous), Loss::SessionUnknown) = (rebound.previous, loss)
                && let Some(instance) = server.instance(&lost.instance)
            {
                let (client, instance) = (self.client().clone(), Arc::clone(instance));
                let (deletion, limit) = (Outgoing::delete(server), self.deletion_timeout());
                // The old session is the old instance's; whether it still answers is nobody's wait.
                tokio::spawn(async move {
                    discard(&client, &instance, &deletion, &previous, limit).await;
                });
            }
        }
        let binding = match binding {
            Some(binding) => binding,
            None => Box::pin(self.settle(session, server)).await?.binding,
        };
        let moved = Moved {
            from: lost.instance.clone(),
            to: binding.instance.clone(),
            epoch: binding.epoch,
            reason: loss,
        };
        Ok(Settled {
            moved: (binding.epoch != lost.epoch).then_some(moved),
            binding,
        })
    }

    /// Makes the new upstream session under the claim that a rebind gave.
    async fn renew(
        &self,
        session: &Session,
        server: &Server,
        lost: &BindingView,
        loss: Loss,
        claim: Claim,
    ) -> Result<Option<BindingView>, SettleError> {
        let (greeting, carried_over) = match self.stored_greeting(session).await {
            Ok(greeting) => greeting,
            Err(error) => {
                self.give_up(session, server, &claim).await;
                return Err(error);
            }
        };
        let established = self.establish(session, server, claim, &greeting).await?;
        let Some((binding, initialized)) = established else {
            return Ok(None);
        };
        metrics::affinity_rebind("upstream");
        tracing::warn!(
            session = %session.digest,
            server = %server.id,
            from = %lost.instance,
            to = %binding.instance,
            epoch = binding.epoch,
            reason = loss.as_str(),
            "session rebound; the state it had upstream is lost"
        );
        if let Some(instance) = server.instance(&binding.instance) {
            self.carry_over(session, server, instance, &initialized, &carried_over)
                .await;
        }
        Ok(Some(binding))
    }
}
