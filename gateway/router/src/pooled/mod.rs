//! Affinity off: calls go to any instance, over upstream sessions that this gateway pools.
//!
//! Nothing is recorded and the store is not used. The gateway initializes a pooled upstream session in its own name,
//! without client capabilities, and answers server-to-client requests with an error. Requests of the same principal and
//! revision share the session.
//!
//! Invariant: losing a pooled session costs only another handshake, because servers with upstream state have affinity
//! on. If affinity is decided by the server, an upstream session with an id is not shared at all.

mod responder;
mod sessionless;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

pub use self::responder::ServerRequestResponder;
pub use self::sessions::PooledSession;
use self::sessions::{PooledSessions, SessionKey};
use crate::in_flight_requests::{InFlightRequest, InFlightRequests, RequestScope};
use crate::request_tag::random_tag;
use mooring_protocol::{Kind, Lane, Message, PendingRequest, Reply, RequestTag, call, ids};
use mooring_settings::Affinity;
use mooring_upstream::{
    Caller, Client, Completion, ExchangeError, HandshakeError, InitializeHandshake, Instance,
    InstanceTransport, Outgoing, ProbeResult, SendError, Server, discard, initialize,
    is_session_unknown, may_be_session_unknown, probe, read_answer, within,
};
use mooring_usage::for_same_user;

/// The pooled upstream sessions of this gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    client: Client,
    boot: Box<str>,
    answer_timeout: Duration,
    sequence: Arc<AtomicU64>,
    sessions: PooledSessions,
    requests: InFlightRequests,
}

/// A response over a pooled session, and the responder for server-to-client requests during it.
#[derive(Debug)]
pub struct PooledReply {
    /// The response.
    pub received: Reply,
    /// Answers the server's requests in place of a client.
    pub responder: ServerRequestResponder,
}

/// Why a request of a stateless session got no response.
#[derive(Debug, thiserror::Error)]
pub enum PooledError {
    /// No instance could be initialized. Nothing ran.
    #[error("no instance could be reached: {0}")]
    NoInstance(#[source] HandshakeError),
    /// Operators have parked every instance of the server. Nothing ran.
    #[error("an operator has parked the server: it gets no calls until it is unparked")]
    Parked,
    /// An instance answered the handshake with an error.
    #[error("the instance refused the handshake: {0}")]
    Handshake(#[source] HandshakeError),
    /// The connection broke during the call, which may have run.
    #[error("the connection to the instance broke during the call")]
    OutcomeUnknown(#[source] SendError),
    /// The body of an error answer could not be read.
    #[error(transparent)]
    Answer(#[from] ExchangeError),
}

impl From<SendError> for PooledError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Credential(_) => Self::Answer(error.into()),
            error if error.is_undelivered() => {
                Self::NoInstance(HandshakeError::Exchange(error.into()))
            }
            error => Self::OutcomeUnknown(error),
        }
    }
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(
        client: Client,
        boot: &str,
        answer_timeout: Duration,
        requests: InFlightRequests,
    ) -> Self {
        Self {
            client,
            boot: boot.into(),
            answer_timeout,
            sequence: Arc::default(),
            sessions: PooledSessions::default(),
            requests,
        }
    }

    /// Begins a client's request: gives it a tag and notes it for cancellations. `None` for other messages.
    #[must_use]
    pub fn begin_request(&self, message: &Message<'_>, lane: Lane) -> Option<InFlightRequest> {
        let id = message.id().filter(|_| message.kind() == Kind::Request)?;
        let pending = PendingRequest {
            id_json: id.as_json().into(),
            tag: random_tag(),
        };
        Some(self.requests.begin(RequestScope::Pooled(lane), pending))
    }

    /// The request that a client's cancellation names, if it is in flight here.
    #[must_use]
    pub fn find_cancelled(&self, message: &Message<'_>, lane: Lane) -> Option<RequestTag> {
        let id_json = message.cancelled_request()?;
        self.requests.cancel(&RequestScope::Pooled(lane), id_json)
    }

    /// Forgets the sessions of a server that is no longer served, and deletes those that its instances keep.
    pub async fn end_sessions_of(&self, server: &Server) {
        for (key, session) in self.sessions.take_of(&server.id) {
            let (instance, principal) = (key.instance(), key.principal());
            let Some((id, instance)) = session.upstream_session.zip(server.instance(instance))
            else {
                continue;
            };
            let deletion = Outgoing::delete(server).on_behalf_of(server, &Caller::of(principal));
            discard(&self.client, instance, &deletion, &id, self.answer_timeout).await;
        }
    }

    /// An upstream session at some reachable instance, whose answer is the client's answer to `initialize`.
    ///
    /// # Errors
    /// See [`PooledError`].
    pub async fn initialize(
        &self,
        server: &Server,
        caller: &Caller<'_>,
        revision: &str,
    ) -> Result<PooledSession, PooledError> {
        let mut last = None;
        for instance in server.in_turn() {
            let key = SessionKey::new(server, instance, caller, revision);
            match self.session(server, instance, &key, caller).await {
                Ok(session) => return Ok(session),
                Err(error) if error.should_try_another_instance() => last = Some(error),
                Err(error) => return Err(PooledError::Handshake(error)),
            }
        }
        Err(unreachable(server, last))
    }

    /// Sends a message to the next reachable instance.
    ///
    /// # Errors
    /// See [`PooledError`]. A message that may have run is not sent again.
    pub async fn send(
        &self,
        server: &Arc<Server>,
        caller: &Caller<'_>,
        revision: &str,
        outgoing: &Outgoing,
    ) -> Result<PooledReply, PooledError> {
        let mut last = None;
        for instance in server.in_turn() {
            let key = SessionKey::new(server, instance, caller, revision);
            // The second attempt is for an instance that was restarted and no longer knows the pooled session.
            for _ in 0..2 {
                let session = match self.session(server, instance, &key, caller).await {
                    Ok(session) => session,
                    Err(error) if error.should_try_another_instance() => {
                        last = Some(error);
                        break;
                    }
                    Err(error) => return Err(PooledError::Handshake(error)),
                };
                match self
                    .send_over(server, instance, &key, session, caller, outgoing)
                    .await
                {
                    Ok(Some(reply)) => return Ok(reply),
                    Ok(None) => {}
                    Err(PooledError::NoInstance(error)) => {
                        last = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Err(unreachable(server, last))
    }

    /// Sends a message over this session. `None` if the instance does not know the session any more: then the message has
    /// not run, and the session is removed.
    async fn send_over(
        &self,
        server: &Arc<Server>,
        instance: &Arc<Instance>,
        key: &SessionKey,
        session: PooledSession,
        caller: &Caller<'_>,
        outgoing: &Outgoing,
    ) -> Result<Option<PooledReply>, PooledError> {
        let mut request = outgoing
            .clone()
            .upstream_session(session.upstream_session.as_ref());
        let exchange = request.begin_exchange(server, &instance.name);
        let reply = self.client.send_once(instance, &request).await?;
        let reply = match exchange {
            Some(exchange) => exchange.watch(reply),
            None => reply,
        };
        if session.upstream_session.is_none()
            && matches!(
                reply.status,
                StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST
            )
        {
            // It may assign session ids now, which the next handshake shows.
            self.sessions.remove(key, &session);
        }
        let received = self
            .reply_unless_lost(server, instance, &request, reply, &session, caller)
            .await?;
        let Some(received) = received else {
            self.sessions.remove(key, &session);
            return Ok(None);
        };
        let responder = ServerRequestResponder {
            client: self.client.clone(),
            server: Arc::clone(server),
            instance: Arc::clone(instance),
            upstream_session: session.upstream_session,
            principal: caller.principal.clone(),
            token: caller.token.cloned(),
        };
        Ok(Some(PooledReply {
            received,
            responder,
        }))
    }

    /// Sends a notification over every session that the caller's requests of this revision share now, without waiting for
    /// its delivery.
    pub async fn notify_all(
        &self,
        server: &Server,
        caller: &Caller<'_>,
        revision: &str,
        outgoing: &Outgoing,
    ) {
        // A notification cannot be sent without the secret either, and is not worth an error.
        let Ok(secret) = server.user_secret_version(caller).await else {
            return;
        };
        for instance in &server.instances {
            let key = SessionKey::new(server, instance, caller, revision);
            let Some(session) = self.sessions.find(&key, secret) else {
                continue;
            };
            let carrying = outgoing
                .clone()
                .upstream_session(session.upstream_session.as_ref());
            let (client, instance) = (self.client.clone(), Arc::clone(instance));
            let limit = self.answer_timeout;
            tokio::spawn(for_same_user(async move {
                let exchange = async { Ok(client.send_once(&instance, &carrying).await?.status) };
                if let Err(error) = within(limit, exchange).await {
                    tracing::info!(instance = %instance.name, %error, "failed to deliver a notification");
                }
            }));
        }
    }

    /// `None` if the instance does not know the pooled session, in which case the call has not run. Servers also answer
    /// so to other requests, so a ping decides.
    async fn reply_unless_lost(
        &self,
        server: &Server,
        instance: &Instance,
        request: &Outgoing,
        mut reply: Reply,
        session: &PooledSession,
        caller: &Caller<'_>,
    ) -> Result<Option<Reply>, ExchangeError> {
        if session.upstream_session.is_none() || !may_be_session_unknown(&mut reply) {
            return Ok(Some(reply));
        }
        let retry_after = reply.retry_after.clone();
        let client = &self.client;
        let source = InstanceTransport { client, instance };
        let answer = read_answer(reply, request, &source).await?;
        if is_session_unknown(&answer)
            && self.probe_session(server, instance, session, caller).await
                == ProbeResult::SessionLost
        {
            return Ok(None);
        }
        let mut reply = answer.into_reply();
        reply.retry_after = retry_after;
        Ok(Some(reply))
    }

    async fn probe_session(
        &self,
        server: &Server,
        instance: &Instance,
        session: &PooledSession,
        caller: &Caller<'_>,
    ) -> ProbeResult {
        let ping = Outgoing::post(server, call::ping(&self.next_id()).into())
            .on_behalf_of(server, &of_pool(caller, None))
            .upstream_session(session.upstream_session.as_ref());
        probe(&self.client, instance, &ping, self.answer_timeout).await
    }

    fn next_id(&self) -> String {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        ids::gateway_id(&self.boot, sequence).unwrap_or_else(|| format!("\"pooled:{sequence}\""))
    }

    async fn session(
        &self,
        server: &Server,
        instance: &Arc<Instance>,
        key: &SessionKey,
        caller: &Caller<'_>,
    ) -> Result<PooledSession, HandshakeError> {
        let secret = server.user_secret_version(caller).await;
        let secret = secret.map_err(|error| {
            let error = SendError::Credential(error.into());
            HandshakeError::Exchange(error.into())
        })?;
        let cell = self.sessions.cell(key, secret);
        cell.get_or_try_init(|| self.initialize_instance(server, instance, key, caller))
            .await
            .cloned()
    }

    async fn initialize_instance(
        &self,
        server: &Server,
        instance: &Arc<Instance>,
        key: &SessionKey,
        caller: &Caller<'_>,
    ) -> Result<PooledSession, HandshakeError> {
        let params = call::own_initialize_params(&key.revision, env!("CARGO_PKG_VERSION"));
        let handshake = InitializeHandshake {
            text: Bytes::from(call::initialize(&self.next_id(), &params)),
            completion: Completion::ByGateway,
        };
        let limit = self.answer_timeout;
        let transport = InstanceTransport {
            client: &self.client,
            instance,
        };
        let caller = of_pool(caller, Some("pooled"));
        let initialized = initialize(&transport, server, &handshake, &caller, limit).await;
        instance.contact.note_handshake(&initialized);
        let initialized = initialized?;
        server.note_statefulness(instance, initialized.upstream_session.as_ref());
        if let Some(assigned) = &initialized.upstream_session
            && server.affinity == Affinity::ByServer
        {
            let (client, instance) = (self.client.clone(), Arc::clone(instance));
            let deletion = Outgoing::delete(server).on_behalf_of(server, &caller);
            let assigned = assigned.clone();
            tokio::spawn(for_same_user(async move {
                discard(&client, &instance, &deletion, &assigned, limit).await;
            }));
            return Err(HandshakeError::SessionAssigned);
        }
        Ok(PooledSession {
            upstream_session: initialized.upstream_session,
            answer: initialized.answer,
        })
    }
}

/// The caller of a request over a session that all requests of one principal share, whichever teams they are made in.
fn of_pool<'a>(caller: &Caller<'a>, session_digest: Option<&'a str>) -> Caller<'a> {
    Caller {
        teams: &[],
        session_digest,
        ..*caller
    }
}

/// No instance was reachable, or none was tried because all are parked.
fn unreachable(server: &Server, last: Option<HandshakeError>) -> PooledError {
    if last.is_none() && server.is_parked() {
        return PooledError::Parked;
    }
    mooring_metrics::affinity_failure("no_instance");
    PooledError::NoInstance(last.unwrap_or(HandshakeError::Exchange(ExchangeError::NoResponse)))
}
