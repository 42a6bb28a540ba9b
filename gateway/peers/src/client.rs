//! Sends requests to peers over pooled TLS connections.
//!
//! Invariant: an error says whether the request may have been delivered. Nothing is sent before the TLS handshake has
//! verified that the other side is the intended boot; an announced address alone proves nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mooring_session::names::WorkerId;
use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::net::TcpStream;
use tower::Service;

use super::forward::{self, Forward, HeaderTooLarge, TRACEPARENT, Verdict};
use super::metrics;
use crate::fleet::{FleetTls, tls_name};
use mooring_traces::{SpanKind, attribute};
use mooring_upstream::{causes, is_refused};

/// Timeout for the TCP connection: a live peer is near.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// Timeout for connecting including the TLS handshake, for which a busy peer needs CPU time.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How long an idle connection stays in the pool.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(60);
/// Most idle connections to one peer.
const IDLE_CONNECTIONS_PER_PEER_MAX: usize = 512;
/// Idle time before the first TCP keepalive probe, and the interval between probes: replies have no time limit.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long a peer's host may acknowledge nothing, neither data nor probes, before TCP breaks the connection. A gateway
/// that has stopped counts as dead earlier; this is for one that still sends heartbeats to the store but cannot be
/// reached. TCP also counts the time in which a slow peer reads nothing of a request.
const SILENT_MAX: Duration = Duration::from_secs(20);

/// Connections to peers. The user part of an authority is the [`tls_name`] of the intended boot, so a connection to one
/// boot is never reused for another at the same address.
type PeerConnections = Pool<LimitedConnector, Full<Bytes>>;

/// The client for requests to peers. Cheap to clone.
#[derive(Clone)]
pub struct PeerClient {
    connections: PeerConnections,
}

/// Why waiting for a reply was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyAbandoned {
    /// The timeout has passed.
    #[error("timed out after {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The store considers the gateway dead.
    #[error("the gateway is considered dead")]
    CountedDead,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The request cannot be forwarded. Nothing was sent.
    #[error(transparent)]
    TooLarge(#[from] HeaderTooLarge),
    /// The gateway's address is invalid. Nothing was sent.
    #[error("the gateway's address cannot be used")]
    Address(#[source] http::Error),
    /// The server at the announced address has no certificate of the fleet. Nothing was sent.
    #[error(
        "the server at the gateway's address has no certificate of this fleet: {0}; give each gateway the same fleet_keys_file and release"
    )]
    Unverified(rustls::Error),
    /// Another gateway or boot of the fleet answers at the announced address. Nothing was sent.
    #[error("another gateway, or another boot of it, answers at the gateway's address")]
    OtherGateway,
    /// The address refuses connections. Nothing was delivered.
    #[error("the gateway refuses connections")]
    Refused,
    /// Connecting failed for another reason. Nothing was delivered.
    #[error("cannot connect to the gateway")]
    Unreachable(#[source] legacy::Error),
    /// An established connection broke. The request may have been delivered.
    #[error("the connection to the gateway broke before it replied")]
    Broken(#[source] legacy::Error),
    /// There was no connection by the end of the wait. Nothing was sent.
    #[error("no connection to the gateway was made: {0}")]
    Unconnected(ReplyAbandoned),
    /// There was no reply by the end of the wait. The request may have been delivered.
    #[error("the gateway did not reply: {0}")]
    Unanswered(ReplyAbandoned),
    /// The reply has no outcome: the request was refused, or the peer runs another release.
    #[error("the gateway replied with status {0} and no outcome")]
    Unexpected(StatusCode),
    /// The gateway did not serve the request. Nothing was delivered.
    #[error(transparent)]
    Verdict(Verdict),
}

impl PeerError {
    /// Whether the server certainly received nothing.
    #[must_use]
    pub const fn is_undelivered(&self) -> bool {
        !matches!(
            self,
            Self::Broken(_) | Self::Unanswered(_) | Self::Unexpected(_)
        )
    }

    /// The value of the label.
    fn outcome(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::Unverified(_) => "unverified",
            Self::OtherGateway => "other_gateway",
            Self::Refused => "refused",
            Self::Address(_) | Self::Unreachable(_) | Self::Unconnected(_) => "unreachable",
            Self::Broken(_) | Self::Unexpected(_) => "broken",
            Self::Unanswered(_) => "timed_out",
            Self::Verdict(verdict) => verdict.into(),
        }
    }
}

impl From<legacy::Error> for PeerError {
    fn from(error: legacy::Error) -> Self {
        if !error.is_connect() {
            return Self::Broken(error);
        }
        if is_refused(&error) {
            return Self::Refused;
        }
        let cause = causes(&error).find_map(|cause| cause.downcast_ref().cloned());
        match cause {
            Some(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Self::OtherGateway,
            Some(cause) => Self::Unverified(cause),
            None => Self::Unreachable(error),
        }
    }
}

impl PeerClient {
    /// A client with this gateway's certificate.
    #[must_use]
    pub fn new(tls: &FleetTls) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_tcp_user_timeout(Some(SILENT_MAX));
        let https = HttpsConnector::new(tcp, tls.client(), true, Arc::new(server_name));
        let connections = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_PER_PEER_MAX)
            .build(LimitedConnector(https));
        Self { connections }
    }

    /// Sends one request to the gateway `to` at the address that it `announced`. Returns when the reply begins, or when
    /// `given_up` yields the reason to stop waiting.
    ///
    /// Dropping the body of an unfinished reply closes the connection, so the peer stops sending it.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn send(
        &self,
        to: &WorkerId,
        announced: &str,
        forward: &Forward,
        given_up: impl Future<Output = ReplyAbandoned>,
    ) -> Result<Response<Incoming>, PeerError> {
        let started = Instant::now();
        let mut span = forward.begin_span(SpanKind::Client);
        span.note_text(attribute::WORKER, to.as_str());
        let traceparent = span.scope().map(|scope| scope.traceparent());
        let exchange = async {
            let mut request = forward.to_request()?;
            if let Some(Ok(value)) = traceparent.map(HeaderValue::try_from) {
                request.headers_mut().insert(TRACEPARENT, value);
            }
            self.exchange(to, announced, request, forward.path(), given_up)
                .await
        };
        let reply = exchange.await;
        let outcome = match &reply {
            Ok(_) => "served",
            Err(error) => {
                span.fail(error.outcome());
                error.outcome()
            }
        };
        metrics::forward(outcome, started.elapsed());
        if let Err(error @ (PeerError::Unverified(_) | PeerError::Unexpected(_))) = &reply {
            tracing::warn!(worker = %to, address = announced, %error, "request not forwarded");
        }
        reply
    }

    /// Sends a request to a path of the gateway `to`.
    pub(super) async fn exchange(
        &self,
        to: &WorkerId,
        announced: &str,
        mut request: Request<Full<Bytes>>,
        path: &'static str,
        given_up: impl Future<Output = ReplyAbandoned>,
    ) -> Result<Response<Incoming>, PeerError> {
        *request.uri_mut() = Uri::builder()
            .scheme(Scheme::HTTPS)
            .authority(format!("{}@{announced}", tls_name(to)))
            .path_and_query(path)
            .build()
            .map_err(PeerError::Address)?;
        let connection = capture_connection(&mut request);
        let mut reply = tokio::select! {
            reply = self.connections.request(request) => reply?,
            reason = given_up => return Err(match *connection.connection_metadata() {
                // With a connection, the request may have been sent.
                Some(_) => PeerError::Unanswered(reason),
                None => PeerError::Unconnected(reason),
            }),
        };
        match forward::take_outcome(&mut reply) {
            Some(outcome) => outcome.map(|()| reply).map_err(PeerError::Verdict),
            None => Err(PeerError::Unexpected(reply.status())),
        }
    }
}

impl fmt::Debug for PeerClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PeerClient")
    }
}

/// Connects within [`HANDSHAKE_LIMIT`].
#[derive(Clone)]
struct LimitedConnector(HttpsConnector<HttpConnector>);

impl Service<Uri> for LimitedConnector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move { tokio::time::timeout(HANDSHAKE_LIMIT, connecting).await? })
    }
}

/// The name that the certificate must have: the part before the first `@`. No such name contains one, so an announced
/// address cannot change it.
fn server_name(uri: &Uri) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let authority = uri.authority().map_or("", Authority::as_str);
    let name = authority.split_once('@').map_or("", |(name, _)| name);
    ServerName::try_from(name.to_owned())
}
