//! Serves the peers' requests to the connections that this gateway owns.
//!
//! Invariant: only the connection of the named epoch is used, and if the answer is a verdict, nothing was delivered.

use http::StatusCode;

use super::super::{Loss, Session, SessionRouter};
use super::connection_table::ConnectionKey;
use mooring_peers::{Forward, Operation, Verdict};
use mooring_protocol::Reply;
use mooring_upstream::connection::Activity;
use mooring_upstream::{Outgoing, SendError};
use mooring_usage::for_same_user;

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
            Operation::Stream => Err(Verdict::Unsupported),
        }
    }

    /// Renews an ended connection of this gateway.
    async fn renew_here(
        &self,
        connection_key: &ConnectionKey,
        forward: &Forward,
    ) -> Result<(), Verdict> {
        if !self.owned_connections().fence.is_open() {
            return Err(Verdict::Fenced);
        }
        let id = connection_key.key.id().cloned().ok_or(Verdict::NotHere)?;
        let prefix = &self.options().key_prefix;
        let session = Session::named(prefix, id, forward.principal.clone());
        let server = self
            .servers()
            .get(connection_key.server.as_str())
            .cloned()
            .ok_or(Verdict::Unsupported)?;
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
