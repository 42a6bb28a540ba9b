//! Affinity off: calls go to any instance, over upstream sessions that this gateway pools.
//!
//! Nothing is recorded and the store is not used. The gateway initializes a pooled upstream session in its own name,
//! without client capabilities, and answers server-to-client requests with an error. Requests of the same principal and
//! revision share the session; principals never do, and no session is used on with another secret of its principal than it
//! was initialized with, or with a token in exchange for another one of its principal's.
//!
//! Invariant: losing a pooled session costs only another handshake, because servers with upstream state have affinity
//! on. If affinity is decided by the server, an upstream session with an id is not shared at all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use mooring_secrets::access_token::AccessToken;
use mooring_session::names::{InstanceName, Principal, ServerName, UpstreamSession};
use tokio::sync::OnceCell;

use crate::in_flight_requests::{InFlightRequest, InFlightRequests, RequestScope};
use crate::request_tag::random_tag;
use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Lane, Message, Method, PendingRequest, Reply, RequestTag, call, ids,
};
use mooring_settings::Affinity;
use mooring_upstream::{
    Answer, Caller, Client, Completion, ExchangeError, HandshakeError, InitializeHandshake,
    Instance, InstanceTransport, Outgoing, ProbeResult, SendError, Server, discard, initialize,
    is_session_unknown, may_be_session_unknown, probe, read_answer, within,
};
use mooring_usage::for_same_user;

/// Most pooled upstream sessions per gateway; at the limit the longest idle one is removed.
const SESSIONS_MAX: usize = 10_000;

/// The pooled upstream sessions of this gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    client: Client,
    boot: Box<str>,
    answer_timeout: Duration,
    sequence: Arc<AtomicU64>,
    sessions: Arc<Mutex<HashMap<Shared, Entry>>>,
    requests: InFlightRequests,
}

/// What requests must have in common to share an upstream session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shared {
    server: ServerName,
    instance: InstanceName,
    principal: Principal,
    revision: Box<str>,
    /// The SHA-256 of the caller's token where it is exchanged: another token of the principal may have other rights.
    token: Option<[u8; 32]>,
}

#[derive(Debug)]
struct Entry {
    session: Arc<OnceCell<PooledSession>>,
    /// The version of the principal's secret with which it was initialized.
    secret: Option<u128>,
    used_at: Instant,
}

/// An upstream session of the gateway itself.
#[derive(Clone, Debug)]
pub struct PooledSession {
    /// The id that the instance assigned, if it is stateful.
    pub upstream_session: Option<UpstreamSession>,
    /// The instance's answer to `initialize`, which clients get as theirs.
    pub answer: Answer,
}

/// A response over a pooled session, and the responder for server-to-client requests during it.
#[derive(Debug)]
pub struct PooledReply {
    /// The response.
    pub received: Reply,
    /// Answers the server's requests in place of a client.
    pub responder: ServerRequestResponder,
}

/// Answers server-to-client requests over a shared session, which belong to no particular client. Pings are answered
/// too.
#[derive(Clone, Debug)]
pub struct ServerRequestResponder {
    client: Client,
    server: Arc<Server>,
    instance: Arc<Instance>,
    upstream_session: Option<UpstreamSession>,
    principal: Principal,
    token: Option<Arc<AccessToken>>,
}

impl ServerRequestResponder {
    /// Closes the connections to the instance, over one of which came the reply to another request.
    pub(crate) fn distrust_connections(&self) {
        self.client.distrust_connections(&self.instance);
    }

    /// The instance that the session is at.
    #[must_use]
    pub fn instance(&self) -> &InstanceName {
        &self.instance.name
    }

    /// Sends the answer without waiting for its delivery.
    pub fn answer(&self, request: &Message<'_>) {
        let Some(id) = request.id() else {
            return;
        };
        let text = if request.method() == Method::Ping {
            Bytes::from(call::empty_result(id.as_json()))
        } else {
            ErrorBody::new(ErrorKind::NoSingleClient)
                .answering(Some(id))
                .to_bytes()
        };
        let caller = Caller {
            token: self.token.as_ref(),
            ..Caller::of(&self.principal)
        };
        let outgoing = Outgoing::post(&self.server, text)
            .on_behalf_of(&self.server, &caller)
            .upstream_session(self.upstream_session.as_ref());
        let (client, instance) = (self.client.clone(), Arc::clone(&self.instance));
        tokio::spawn(for_same_user(async move {
            if let Err(error) = client.send_once(&instance, &outgoing).await {
                tracing::info!(%error, "failed to answer a server-to-client request over a pooled session");
            }
        }));
    }
}

/// Why a request of a stateless session got no response.
#[derive(Debug, thiserror::Error)]
pub enum PooledError {
    /// No instance could be initialized. Nothing ran.
    #[error("no instance could be reached: {0}")]
    NoInstance(#[source] HandshakeError),
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
            sessions: Arc::default(),
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
            let key = shared(server, instance, caller, revision);
            match self.session(server, instance, &key, caller).await {
                Ok(session) => return Ok(session),
                Err(error) if error.should_try_another_instance() => last = Some(error),
                Err(error) => return Err(PooledError::Handshake(error)),
            }
        }
        Err(unreachable(last))
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
            let key = shared(server, instance, caller, revision);
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
                let carrying = outgoing
                    .clone()
                    .upstream_session(session.upstream_session.as_ref());
                let exchange = outgoing.begin_exchange(server.id.as_str(), instance.name.as_str());
                let sent = self.client.send_once(instance, &carrying).await;
                let sent = match exchange {
                    Some(exchange) => sent.map(|reply| exchange.watch(reply)),
                    None => sent,
                };
                if let Ok(reply) = &sent
                    && session.upstream_session.is_none()
                    && matches!(
                        reply.status,
                        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST
                    )
                {
                    // It may assign session ids now, which the next handshake shows.
                    self.drop_session(&key, &session);
                }
                match sent {
                    Ok(reply) => match self
                        .reply_unless_lost(server, instance, &carrying, reply, &session, caller)
                        .await?
                    {
                        Some(received) => {
                            let responder = ServerRequestResponder {
                                client: self.client.clone(),
                                server: Arc::clone(server),
                                instance: Arc::clone(instance),
                                upstream_session: session.upstream_session,
                                principal: caller.principal.clone(),
                                token: caller.token.cloned(),
                            };
                            return Ok(PooledReply {
                                received,
                                responder,
                            });
                        }
                        None => self.drop_session(&key, &session),
                    },
                    Err(error @ SendError::Credential(_)) => {
                        return Err(PooledError::Answer(error.into()));
                    }
                    Err(error) if error.is_undelivered() => {
                        last = Some(HandshakeError::Exchange(error.into()));
                        break;
                    }
                    Err(error) => return Err(PooledError::OutcomeUnknown(error)),
                }
            }
        }
        Err(unreachable(last))
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
            let key = shared(server, instance, caller, revision);
            let Some(session) = self.known_session(&key, secret) else {
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
        key: &Shared,
        caller: &Caller<'_>,
    ) -> Result<PooledSession, HandshakeError> {
        let secret = server.user_secret_version(caller).await;
        let secret = secret.map_err(|error| {
            let error = SendError::Credential(error.into());
            HandshakeError::Exchange(error.into())
        })?;
        let cell = self.cell(key.clone(), secret);
        cell.get_or_try_init(|| self.initialize_instance(server, instance, key, caller))
            .await
            .cloned()
    }

    async fn initialize_instance(
        &self,
        server: &Server,
        instance: &Arc<Instance>,
        key: &Shared,
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

    /// The session that was initialized with this secret, or a new one.
    fn cell(&self, shared: Shared, secret: Option<u128>) -> Arc<OnceCell<PooledSession>> {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(&shared) {
            let idle_for_longest = sessions
                .iter()
                .min_by_key(|(_, entry)| entry.used_at)
                .map(|(shared, _)| shared.clone());
            if let Some(shared) = idle_for_longest {
                sessions.remove(&shared);
            }
        }
        let new = || Entry {
            session: Arc::default(),
            secret,
            used_at: Instant::now(),
        };
        let entry = sessions.entry(shared).or_insert_with(new);
        if entry.secret != secret {
            *entry = new();
        }
        entry.used_at = Instant::now();
        Arc::clone(&entry.session)
    }

    /// The session that was initialized with this secret, if there is one.
    fn known_session(&self, shared: &Shared, secret: Option<u128>) -> Option<PooledSession> {
        let sessions = self.lock();
        let entry = sessions
            .get(shared)
            .filter(|entry| entry.secret == secret)?;
        entry.session.get().cloned()
    }

    /// Removes a lost session, unless another request has already replaced it.
    fn drop_session(&self, shared: &Shared, lost: &PooledSession) {
        let mut sessions = self.lock();
        let is_present = sessions
            .get(shared)
            .and_then(|entry| entry.session.get())
            .is_some_and(|session| session.upstream_session == lost.upstream_session);
        if is_present {
            sessions.remove(shared);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shared, Entry>> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
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

fn shared(server: &Server, instance: &Instance, caller: &Caller<'_>, revision: &str) -> Shared {
    Shared {
        server: server.id.clone(),
        instance: instance.name.clone(),
        principal: caller.principal.clone(),
        revision: revision.into(),
        token: server.exchanged_token_digest(caller),
    }
}

fn unreachable(last: Option<HandshakeError>) -> PooledError {
    mooring_metrics::affinity_failure("no_instance");
    PooledError::NoInstance(last.unwrap_or(HandshakeError::Exchange(ExchangeError::NoResponse)))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use http::HeaderMap;
    use mooring_session::rules::Ownership;
    use mooring_settings::{
        ClientAuthentication, Concurrency, LostStateNotice, OauthSettings, OnUpstreamLoss,
        TokenGrant,
    };
    use mooring_upstream::{ClientOptions, OauthTokens, SessionPolicy};

    use super::*;

    fn server() -> Server {
        let instance = Instance {
            name: InstanceName::parse(b"http://tools.example/mcp").unwrap(),
            uri: "http://tools.example/mcp".parse().unwrap(),
            reach: Default::default(),
            statefulness: Default::default(),
            contact: Default::default(),
        };
        let policy = SessionPolicy {
            affinity: Affinity::Off,
            ownership: Ownership::Shared,
            concurrency: Concurrency::Serial,
            on_upstream_loss: OnUpstreamLoss::Reinitialize,
            lost_state_notice: LostStateNotice::Content,
        };
        let id = ServerName::parse(b"tools").unwrap();
        Server::new(id, vec![Arc::new(instance)], policy, HeaderMap::new())
    }

    fn server_with(grant: TokenGrant) -> Server {
        let settings = OauthSettings {
            grant,
            token_url: "https://login.example/token".parse().unwrap(),
            client_id: "gateway".to_owned(),
            client_secret_file: "/none".into(),
            authentication: ClientAuthentication::Basic,
            scopes: Vec::new(),
            resource: None,
            audience: None,
        };
        let mut server = server();
        server.tokens = Some(Arc::new(OauthTokens::new(server.id.clone(), settings)));
        server
    }

    #[test]
    fn two_tokens_share_a_session_unless_they_are_exchanged() {
        let principal = Principal::local();
        let tokens = [1, 2].map(|number| Arc::new(AccessToken::new("a", [number; 32], u64::MAX)));
        for (server, is_shared) in [
            (server(), true),
            (server_with(TokenGrant::ClientCredentials), true),
            (server_with(TokenGrant::TokenExchange), false),
        ] {
            let of_token = |token| {
                let caller = Caller {
                    token: Some(token),
                    ..Caller::of(&principal)
                };
                shared(&server, &server.instances[0], &caller, "2025-11-25")
            };
            let [first, second] = tokens.each_ref().map(of_token);
            assert_eq!(first == second, is_shared);
            let [again, _] = tokens.each_ref().map(of_token);
            assert_eq!(first, again);
        }
    }

    #[test]
    fn a_session_of_another_secret_is_not_used() {
        let options = ClientOptions {
            connect_timeout: Duration::ZERO,
            idle_connection: Duration::ZERO,
            lost_after: Duration::ZERO,
            event_bytes_max: 0,
        };
        let client = Client::new(options, false).unwrap();
        let pool = Pool::new(client, "boot", Duration::ZERO, InFlightRequests::default());
        let (server, principal) = (server(), Principal::local());
        let caller = Caller::of(&principal);
        let key = shared(&server, &server.instances[0], &caller, "2025-11-25");
        let session = PooledSession {
            upstream_session: None,
            answer: Answer {
                status: StatusCode::OK,
                upstream_session: None,
                text: Bytes::new(),
            },
        };
        let opened = pool.cell(key.clone(), Some(1));
        assert!(pool.known_session(&key, Some(1)).is_none(), "not open yet");
        opened.set(session).unwrap();
        assert!(pool.known_session(&key, Some(1)).is_some());
        for other in [Some(2), None] {
            assert!(pool.known_session(&key, other).is_none(), "{other:?}");
        }
    }
}
