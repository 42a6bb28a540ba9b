//! Serves the peers' requests to the connections that this gateway owns.
//!
//! Invariant: only the connection of the named epoch is used, and if the answer is a verdict, nothing was delivered.

use std::sync::Arc;

use http::StatusCode;
use mooring_session::names::InstanceName;

use super::super::moving::targets;
use super::super::{Loss, Session, SessionRouter};
use super::connection_table::ConnectionKey;
use mooring_peers::{Forward, Operation, Verdict};
use mooring_protocol::Reply;
use mooring_upstream::connection::Activity;
use mooring_upstream::{Outgoing, SendError, Server};
use mooring_usage::for_same_user;

use crate::departure::DeparturePhase;

impl SessionRouter {
    /// Executes a peer's request to a connection.
    ///
    /// # Errors
    /// The verdict, if nothing was done.
    pub async fn serve_forward(&self, forward: Forward) -> Result<Reply, Verdict> {
        let key = self
            .store()
            .key_named(&forward.session_key)
            .ok_or(Verdict::NotHere)?;
        let connection_key = ConnectionKey {
            key,
            server: forward.server.clone(),
        };
        match forward.operation {
            Operation::Serve => {
                let outgoing = Outgoing::forwarded(forward.method, forward.headers, forward.body);
                let leaving = self.owned_connections().admission.reply_leaves(&outgoing);
                let reply = self
                    .owned_connections()
                    .serve_here(&connection_key, forward.epoch, &outgoing)
                    .await
                    .map_err(verdict)?;
                Ok(match leaving {
                    // In flight until it is read to its end or dropped.
                    Some(leaving) => Reply {
                        body: reply.body.guarded_by(leaving),
                        ..reply
                    },
                    None => reply,
                })
            }
            Operation::Close => {
                self.owned_connections()
                    .close(&connection_key, forward.epoch);
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            Operation::Renew => {
                let router = self.clone();
                // Runs to completion even if the asking peer disconnects.
                let renewing = tokio::spawn(for_same_user(async move {
                    router.renew_here(&connection_key, &forward).await
                }));
                renewing.await.unwrap_or(Err(Verdict::Unsupported))?;
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            Operation::Move => {
                let router = self.clone();
                // Runs to completion even if the asking peer disconnects.
                let moving = tokio::spawn(for_same_user(async move {
                    router.move_owned(&connection_key, &forward).await
                }));
                moving.await.unwrap_or(Err(Verdict::Unsupported))?;
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            Operation::Stream => Err(Verdict::Unsupported),
        }
    }

    /// Moves a binding of this gateway, for a peer that holds the session's turn.
    async fn move_owned(
        &self,
        connection_key: &ConnectionKey,
        forward: &Forward,
    ) -> Result<(), Verdict> {
        let (session, server) = self.named_by(connection_key, forward)?;
        let to = match &*forward.body {
            b"" => None,
            name => Some(InstanceName::parse(name).map_err(|_| Verdict::Unsupported)?),
        };
        let binding = self.resolve_binding(&session, &server).await;
        let binding = binding.map_err(|_| Verdict::NotHere)?;
        let is_mine = (binding.owner.as_ref()).is_some_and(|owner| self.is_owner(owner));
        if !is_mine || binding.epoch != forward.epoch {
            return Err(Verdict::NotHere);
        }
        if self.departure().phase() == DeparturePhase::Draining {
            // The gateway that asked takes it.
            let given_up = self.give_up(connection_key, forward.epoch).await;
            return given_up.map_err(|_| Verdict::Ended);
        }
        let targets = targets(&server, &binding, to.as_ref()).map_err(|_| Verdict::Unsupported)?;
        let moving = self.move_here(&session, &server, &binding, targets);
        moving.await.map_err(|error| {
            tracing::warn!(session = %session.digest, server = %server.id, %error, "a binding was not moved");
            Verdict::Ended
        })
    }

    /// The session and server of a peer's request, unless this gateway may have lost the connection.
    fn named_by(
        &self,
        connection_key: &ConnectionKey,
        forward: &Forward,
    ) -> Result<(Session, Arc<Server>), Verdict> {
        if !self.owned_connections().fence.is_open() {
            return Err(Verdict::Fenced);
        }
        let id = connection_key.key.id().cloned().ok_or(Verdict::NotHere)?;
        let prefix = &self.options().key_prefix;
        let session = Session::named(prefix, id, forward.principal.clone());
        let servers = self.servers();
        let server = servers.get(connection_key.server.as_str());
        let server = server.cloned().ok_or(Verdict::Unsupported)?;
        Ok((session, server))
    }

    /// Renews an ended connection of this gateway.
    async fn renew_here(
        &self,
        connection_key: &ConnectionKey,
        forward: &Forward,
    ) -> Result<(), Verdict> {
        let (session, server) = self.named_by(connection_key, forward)?;
        let binding = &self
            .resolve_binding(&session, &server)
            .await
            .map_err(|_| Verdict::NotHere)?;
        let has_ended = binding.epoch == forward.epoch
            && match self
                .owned_connections()
                .table
                .get(connection_key, forward.epoch)
            {
                Ok(connection) => connection.activity() == Activity::Stopped,
                Err(error) => matches!(error, SendError::Ended(_) | SendError::Elsewhere),
            };
        let is_mine = (binding.owner.as_ref()).is_some_and(|owner| self.is_owner(owner));
        if !has_ended || !is_mine {
            return Ok(());
        }
        match self
            .recover(&session, &server, binding, Loss::ConnectionEnded)
            .await
        {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::warn!(session = %session.digest, server = %server.id, %error, "a lost connection was not renewed");
                Err(Verdict::Ended)
            }
        }
    }
}

/// The verdict for an error. A connection that refuses a message has not delivered it.
fn verdict(error: SendError) -> Verdict {
    match error {
        SendError::Ended(_) => Verdict::Ended,
        SendError::OwnerDraining => Verdict::Draining,
        SendError::OwnerUnavailable(_) => Verdict::Fenced,
        _ => Verdict::NotHere,
    }
}
