//! Connects: from a claim to a connection whose handshake is complete.
//!
//! Invariant: a connection enters the table once its server has answered the handshake; if it fails earlier or the
//! claim is lost, it is closed.

use std::sync::Arc;
use std::time::Duration;

use super::super::{ServerInstances, Session, SessionRouter, caller_of};
use super::Connector;
use super::connection_table::{ConnectionKey, OwnedConnection};
use mooring_delivery::Claim;
use mooring_store::OwnerChange;
use mooring_upstream::connection::link::Link;
use mooring_upstream::connection::{Connection, ConnectionOptions};
use mooring_upstream::sse::{self as legacy, ConnectError};
use mooring_upstream::stdio::{Label, StartedProgram};
use mooring_upstream::{
    ContactOutcome, ExchangeError, FailureCause, HandshakeError, InitializeHandshake,
    InitializedSession, Instance, SendError, Server, initialize,
};

/// Renewals of a claim per lease, while the server starts.
const RENEWALS_PER_LEASE: u64 = 3;

/// Limits of every connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// Longest message of a server, in bytes.
    pub message_bytes_max: usize,
    /// Most events per connection that are kept for resumes.
    pub events_max: usize,
    /// Most bytes of these events.
    pub event_bytes_max: usize,
    /// Time limit for the client's answer to a server-to-client request.
    pub client_answer_timeout: Duration,
}

impl SessionRouter {
    /// Connects to the server, performs the handshake, and records the connection under the claim's epoch. The claim is
    /// renewed meanwhile.
    ///
    /// # Errors
    /// The connection failed; nothing of it is left.
    pub(in super::super) async fn connect(
        &self,
        session: &Session,
        server: &Server,
        instance: &Arc<Instance>,
        claim: &Claim,
        handshake: &InitializeHandshake,
    ) -> Result<InitializedSession, HandshakeError> {
        let connecting = self.connect_once(session, server, instance, claim, handshake);
        tokio::select! {
            biased;
            connected = connecting => connected,
            () = self.keep_claim(session, server, claim) => Err(HandshakeError::Exchange(
                ExchangeError::NoResponse,
            )),
        }
    }

    async fn connect_once(
        &self,
        session: &Session,
        server: &Server,
        instance: &Arc<Instance>,
        claim: &Claim,
        handshake: &InitializeHandshake,
    ) -> Result<InitializedSession, HandshakeError> {
        let epoch = claim.binding.epoch;
        let failed = |error: SendError| HandshakeError::Exchange(ExchangeError::Send(error));
        let Some(connector) = self.connector_of(server) else {
            return Err(failed(start_error("it is not configured here")));
        };
        let (link, program) = self
            .link(&connector, session, server, instance)
            .await
            .map_err(failed)?;
        let options = &self.owned_connections().options;
        let connection = Connection::start(
            link,
            ConnectionOptions {
                epoch,
                message_bytes_max: options.message_bytes_max,
                events_max: options.events_max,
                event_bytes_max: options.event_bytes_max,
                client_answer_timeout: options.client_answer_timeout,
                memory: caller_of(session).memory.cloned(),
                server: server.id.as_str().into(),
                session: Arc::from(&*session.digest),
            },
        );
        let limit = match &*connector {
            Connector::Stdio { start_timeout, .. } => *start_timeout,
            Connector::Sse => self.options().answer_timeout,
        };
        let initialized =
            initialize(&connection, server, handshake, &caller_of(session), limit).await;
        let initialized = match (initialized, program) {
            (Err(HandshakeError::Exchange(error)), Some(program)) => {
                let cause = program.explain(&connection, &error).await;
                return Err(failed(SendError::Unstarted(Box::new(cause))));
            }
            (initialized, _) => initialized?,
        };
        let connection_key = ConnectionKey::of(session, server);
        self.owned_connections()
            .table
            .keep(connection_key, OwnedConnection { epoch, connection });
        self.note_owner(
            &session.digest,
            &server.id,
            epoch,
            OwnerChange::Connected,
            None,
        );
        Ok(initialized)
    }

    async fn link(
        &self,
        connector: &Connector,
        session: &Session,
        server: &Server,
        instance: &Arc<Instance>,
    ) -> Result<(Link, Option<StartedProgram>), SendError> {
        match connector {
            Connector::Stdio { spec, children, .. } => {
                let label = Label {
                    server: server.id.as_str().into(),
                    session: Arc::from(&*session.digest),
                };
                let started = async {
                    let slot = self.make_process_room(&server.id, spec, children).await?;
                    children.start_in(slot, spec, label).await
                };
                let child = started.await.map_err(|error| {
                    tracing::warn!(server = %server.id, %error, "failed to start a server process");
                    start_error(error.for_caller())
                })?;
                let program = StartedProgram::new(child.stderr, &spec.environment);
                Ok((child.link, Some(program)))
            }
            Connector::Sse => {
                let limit = self.options().answer_timeout;
                let link = legacy::connect(self.client(), instance, &server.headers, limit).await;
                let link = link.map_err(|error| {
                    tracing::warn!(server = %server.id, instance = %instance.name, %error, "a legacy stream could not be opened");
                    connect_error(error)
                })?;
                Ok((link, None))
            }
        }
    }

    /// Renews the claim while this is polled; ends when the claim is lost. The claim's lease stays short because a
    /// server may take long to start, and a gateway that dies meanwhile must be detected early.
    async fn keep_claim(&self, session: &Session, server: &Server, claim: &Claim) {
        let lease = self.options().claim_lease;
        let pause = Duration::from_millis(lease.get() / RENEWALS_PER_LEASE);
        let instances = ServerInstances(server);
        let renewal = (self.facts(session, server, &instances)).renew_claim(&claim.token, lease);
        loop {
            tokio::time::sleep(pause).await;
            match self.store().bind(&session.key, &renewal).await {
                Ok(bound) if bound.won => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(session = %session.digest, %error, "failed to renew a claim");
                }
            }
        }
    }
}

/// The server's program could not be started.
fn start_error(text: impl Into<Box<str>>) -> SendError {
    let cause = FailureCause::new(ContactOutcome::NotStarted, text);
    SendError::Unstarted(Box::new(cause))
}

/// The server's stream could not be opened.
fn connect_error(error: ConnectError) -> SendError {
    let outcome = match error {
        ConnectError::Send(error) => return error,
        ConnectError::Status(_) => ContactOutcome::Status,
        ConnectError::NoEndpoint(_) => ContactOutcome::TimedOut,
        ConnectError::Stream(_) => ContactOutcome::Broken,
        ConnectError::NotEvents | ConnectError::Endpoint(_) => ContactOutcome::Invalid,
    };
    SendError::Unstarted(Box::new(FailureCause::new(outcome, error.to_string())))
}
