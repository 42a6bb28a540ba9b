//! Probes: whether an upstream session still exists, and whether another instance of its server answers.

use std::sync::Arc;

use mooring_session::names::InstanceName;
use mooring_session::rules::Ownership;
use mooring_session::view::BindingView;
use tokio::task::JoinSet;

use super::{Session, SessionRouter, caller_of};
use mooring_upstream::{
    ExchangeError, Outgoing, ProbeResult, SendError, Server, probe, read_answer, within,
};
use mooring_usage::for_same_user;

/// Most instances that are probed.
const ASKED_MAX: usize = 8;

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
}
