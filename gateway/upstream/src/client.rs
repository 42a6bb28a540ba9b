//! The HTTP client to upstream instances: pooled connections for traffic, a fresh one for every probe.
//!
//! Invariant: an error of [`Client::send`] says whether a byte of the request can have reached the instance.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::cause::connect_text;
use super::http_reply::read_http;
use super::{FailureCause, Instance, Reach, UNREACHED_LOST_AFTER};
use mooring_protocol::{Reply, ReplyError};

/// Most idle connections kept to one instance: enough for the concurrency of one process, small beside its file limit.
const IDLE_CONNECTIONS_PER_INSTANCE_MAX: usize = 512;
/// How long to wait before a refused connection is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(40);

/// How long a connection may be silent before TCP asks whether the other side still lives, and between two such
/// questions. Calls have no time limit, so an instance whose host vanished would be waited for without end.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// After this many unanswered questions the connection is broken.
const KEEPALIVE_RETRIES: u32 = 4;

type Connections = Pool<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Talks to upstream instances. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client(Arc<Pools>);

#[derive(Debug)]
struct Pools {
    pooled: Connections,
    fresh: Connections,
    lost_after: Duration,
    event_bytes_max: usize,
}

/// Why the client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot read this system's root certificates, which the https:// instances need")]
pub struct ClientError(#[source] io::Error);

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The instance refused connections for as long as counts as lost. Nothing was delivered.
    #[error("the instance refuses connections")]
    Refused,
    /// No connection was made for another reason (time-out, name, TLS). Nothing was delivered.
    #[error("cannot connect to the instance: {}", connect_text(.0))]
    Connect(#[source] legacy::Error),
    /// The same for as long as counts as lost: the instance's host may have vanished. Nothing was delivered.
    #[error("the instance cannot be reached: {}", connect_text(.0))]
    Unreachable(#[source] legacy::Error),
    /// The connection broke after it was made. The request may have been delivered and may have run.
    #[error("the connection to the instance broke before it answered")]
    Broken(#[source] legacy::Error),
    /// The server could not be started, or its stream not opened. Nothing was delivered.
    #[error("the server could not be started: {0}")]
    Unstarted(Box<FailureCause>),
    /// The connection that a worker held to the server has ended. Nothing was delivered.
    #[error("the connection to the server has ended: {0}")]
    Ended(Box<str>),
    /// The worker that was asked does not hold the connection at this epoch, or not any more. Nothing was delivered.
    #[error("another worker holds the connection to the server")]
    Elsewhere,
    /// The worker that holds the connection stops and takes nothing new. Nothing was delivered.
    #[error("the worker that holds the connection to the server is stopping")]
    OwnerDraining,
    /// The worker that holds the connection cannot be reached, or does not drive it while it cannot reach the store.
    /// Nothing was delivered.
    #[error("the worker that holds the connection to the server does not answer: {0}")]
    OwnerAway(Box<str>),
    /// What answers at the address of the worker that holds the connection is not of this fleet. Nothing was delivered.
    #[error("the worker that holds the connection to the server cannot be verified: {0}")]
    OwnerUnverified(Box<str>),
    /// The way to the worker that holds the connection broke. The request may have been delivered and may have run.
    #[error("the way to the worker that holds the connection broke: {0}")]
    OwnerBroken(Box<str>),
}

impl SendError {
    /// Whether it is certain that the instance received nothing.
    #[must_use]
    pub const fn is_undelivered(&self) -> bool {
        !matches!(self, Self::Broken(_) | Self::OwnerBroken(_))
    }
}

/// How connections are made and kept.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Longest single attempt to connect.
    pub connect_timeout: Duration,
    /// Longest time an idle connection is kept.
    pub idle_connection: Duration,
    /// How long refused connections are tried again before the instance counts as lost.
    pub lost_after: Duration,
    /// Longest event of a reply, in bytes.
    pub event_bytes_max: usize,
}

/// The connection to an instance broke in the middle of a reply.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the instance broke")]
struct ReplyBroken(#[source] hyper::Error);

impl Client {
    /// A client. System root certificates are read once, here.
    ///
    /// # Errors
    /// When there are none and `needs_tls` says that an instance cannot do without.
    pub fn new(options: ClientOptions, needs_tls: bool) -> Result<Self, ClientError> {
        let tls = tls_config(needs_tls)?;
        let connections = |idle_max: usize| {
            let mut tcp = HttpConnector::new();
            tcp.set_nodelay(true);
            tcp.enforce_http(false);
            tcp.set_connect_timeout(Some(options.connect_timeout));
            tcp.set_keepalive(Some(KEEPALIVE));
            tcp.set_keepalive_interval(Some(KEEPALIVE));
            tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
            let connector = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp);
            Pool::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(options.idle_connection)
                .pool_max_idle_per_host(idle_max)
                .build(connector)
        };
        Ok(Self(Arc::new(Pools {
            pooled: connections(IDLE_CONNECTIONS_PER_INSTANCE_MAX),
            fresh: connections(0),
            lost_after: options.lost_after,
            event_bytes_max: options.event_bytes_max,
        })))
    }

    /// Sends a request over a pooled connection. A refused connection is tried again until the instance counts as
    /// lost; a connection that breaks is not, because the request may have run.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(
        &self,
        instance: &Instance,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, SendError> {
        self.send_over(&self.0.pooled, instance, request).await
    }

    /// Sends a request over a connection of its own, so that a reset of a reused one proves nothing.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_fresh(
        &self,
        instance: &Instance,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, SendError> {
        self.send_over(&self.0.fresh, instance, request).await
    }

    /// Sends a request once, and takes the first refusal for an answer: for what nobody waits for.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_once(
        &self,
        instance: &Instance,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, SendError> {
        let error = match self.0.pooled.request(request).await {
            Ok(response) => return Ok(self.received(instance, response)),
            // One refusal that nobody tries again is no row: it must not make the next one count as lost.
            Err(error) if is_refused(&error) => SendError::Refused,
            Err(error) if error.is_connect() => SendError::Connect(error),
            Err(error) => SendError::Broken(error),
        };
        instance.contact.fail(FailureCause::from(&error));
        Err(error)
    }

    async fn send_over(
        &self,
        connections: &Connections,
        instance: &Instance,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, SendError> {
        let error = loop {
            let began = Instant::now();
            let error = match connections.request(request.clone()).await {
                Ok(response) => return Ok(self.received(instance, response)),
                Err(error) => error,
            };
            if !error.is_connect() {
                break SendError::Broken(error);
            }
            if !is_refused(&error) {
                break if instance.reach.unreached(began) >= UNREACHED_LOST_AFTER {
                    SendError::Unreachable(error)
                } else {
                    SendError::Connect(error)
                };
            }
            if self.is_lost(&instance.reach) {
                break SendError::Refused;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        };
        instance.contact.fail(FailureCause::from(&error));
        Err(error)
    }

    /// Notes what the head says of the instance. A status of 4xx is about the request: whoever sent it judges it.
    fn received(&self, instance: &Instance, response: Response<Incoming>) -> Reply {
        instance.reach.succeeded();
        let status = response.status();
        if status.is_server_error() {
            instance.contact.fail(FailureCause::status(status));
        } else if !status.is_client_error() {
            instance.contact.succeed();
        }
        let broken = |error| ReplyError::broken(ReplyBroken(error));
        read_http(response, self.0.event_bytes_max, broken)
    }

    fn is_lost(&self, reach: &Reach) -> bool {
        reach.refused() >= self.0.lost_after
    }
}

/// Whether the other side answered that nobody listens there: for a process on a live host, the sign of its death.
pub fn is_refused(error: &legacy::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        source = cause.source();
    }
    false
}

/// How TLS is spoken: with the system's root certificates, which are read where they are needed.
pub fn tls_config(needs_tls: bool) -> Result<rustls::ClientConfig, ClientError> {
    let mut roots = rustls::RootCertStore::empty();
    if needs_tls {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let missing = io::Error::new(io::ErrorKind::NotFound, "no usable root certificate");
            return Err(ClientError(missing));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError(io::Error::other(error)))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
