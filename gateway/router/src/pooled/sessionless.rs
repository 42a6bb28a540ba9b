//! Requests that belong to no session (MCP 2026-07-28): to any instance that can be reached, or to the one that has what
//! they are about. Without the store, and without a handshake.

use std::sync::Arc;

use super::{Pool, PooledError, PooledReply, ServerRequestResponder, unreachable};
use mooring_upstream::{
    Caller, ExchangeError, HandshakeError, Instance, Outgoing, Server, ServerEra, era_of,
};

impl Pool {
    /// The era in which the server serves clients without sessions; none if its answer does not show that.
    ///
    /// # Errors
    /// It could not be asked.
    pub async fn era_of(
        &self,
        server: &Server,
        caller: &Caller<'_>,
    ) -> Result<Option<ServerEra>, ExchangeError> {
        let limit = self.answer_timeout;
        era_of(&self.client, server, caller, || self.next_id(), limit).await
    }

    /// Sends a request to this instance, or else to the next one that can be reached.
    ///
    /// # Errors
    /// See [`PooledError`]. A request that may have run is not sent again.
    pub async fn send_sessionless(
        &self,
        server: &Arc<Server>,
        instance: Option<&Arc<Instance>>,
        caller: &Caller<'_>,
        outgoing: &Outgoing,
    ) -> Result<PooledReply, PooledError> {
        let mut last = None;
        let instances: Vec<&Arc<Instance>> = match instance {
            Some(instance) => vec![instance],
            None => server.in_turn().collect(),
        };
        for instance in instances {
            let mut request = outgoing.clone();
            let exchange = request.begin_exchange(server, &instance.name);
            let reply = match self.client.send_once(instance, &request).await {
                Ok(reply) => reply,
                Err(error) if error.is_undelivered() => {
                    last = Some(HandshakeError::Exchange(error.into()));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let received = match exchange {
                Some(exchange) => exchange.watch(reply),
                None => reply,
            };
            let responder = ServerRequestResponder {
                client: self.client.clone(),
                server: Arc::clone(server),
                instance: Arc::clone(instance),
                upstream_session: None,
                principal: caller.principal.clone(),
                token: caller.token.cloned(),
            };
            return Ok(PooledReply {
                received,
                responder,
            });
        }
        Err(unreachable(server, last))
    }
}
