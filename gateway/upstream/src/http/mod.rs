//! HTTP/1.1 of the gateway as a client: one exchange at a time over a connection that the caller's own task drives.
//!
//! A general client gives each connection a task, and each exchange a queue between that task and the caller's. Both cost
//! more than a small call does (decision 0066). Here the request is written and the response read by the task that waits
//! for it, so an exchange that waits has no buffer, and an idle connection nothing but its socket.
//!
//! Invariants: an error says whether a byte of the request can have left; a connection is used again only after a response
//! that is whole, to a request that was sent whole, with nothing behind it.

mod body;
mod connect;
mod idle;
mod request;
mod response_head;
mod round_trip;
mod round_trip_error;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response, Uri};
use thread_local::ThreadLocal;

pub(crate) use self::body::ResponseBody;
pub use self::connect::{ConnectionError, SilenceLimits};
use self::connect::{Connector, UpstreamStream};
use self::idle::{Distrust, IdleConnections, OriginPool};
pub(crate) use self::request::HttpRequest;
use self::round_trip::RoundTrip;
pub use self::round_trip_error::RoundTripError;
pub use self::tls::{ClientError, tls_config};
use crate::cause::connect_text;
use crate::http_reply::read_http;
use mooring_protocol::{Reply, ReplyError};
use mooring_usage::MemoryShare;

/// Which connection a request is sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionChoice {
    /// An idle one, or a new one if there is none.
    Pooled,
    /// A new one, which is closed afterwards.
    Fresh,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// There was no connection. Nothing was sent.
    #[error("cannot connect: {}", connect_text(.0))]
    Connect(ConnectionError),
    /// The request may no longer be sent: see [`SendPermit`](crate::SendPermit). Nothing was sent.
    #[error("the request waited too long for a connection")]
    NotPermitted,
    /// The connection failed. The request may have been delivered.
    #[error(transparent)]
    RoundTrip(RoundTripError),
}

/// The connection broke in the middle of a response.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the server broke")]
struct ResponseBroken(#[source] RoundTripError);

/// Timeouts and limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct HttpClientOptions {
    /// Time limit of one TCP connection attempt.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle_connection: Duration,
    /// When a silent host has vanished.
    pub silence: SilenceLimits,
    /// Longest event of a response, in bytes.
    pub event_bytes_max: usize,
}

impl HttpClientOptions {
    fn connector(&self, tls: rustls::ClientConfig) -> Connector {
        Connector::new(self.connect_timeout, self.silence, tls)
    }
}

/// The client: a connector, and the idle connections of each thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient(Arc<ClientState>);

#[derive(Debug)]
struct ClientState {
    connector: ArcSwap<Connector>,
    options: HttpClientOptions,
    /// Each thread has its own: the sockets of a connection belong to the runtime that opened it.
    idle: ThreadLocal<Arc<IdleConnections>>,
    distrust: Arc<Distrust>,
}

impl HttpClient {
    /// A client that trusts what `tls` trusts, see [`tls_config`].
    #[must_use]
    pub fn new(options: HttpClientOptions, tls: rustls::ClientConfig) -> Self {
        Self(Arc::new(ClientState {
            connector: ArcSwap::from_pointee(options.connector(tls)),
            options,
            idle: ThreadLocal::new(),
            distrust: Arc::default(),
        }))
    }

    /// Connections that are opened from now on trust what `tls` trusts.
    pub fn trust(&self, tls: rustls::ClientConfig) {
        let connector = self.0.options.connector(tls);
        self.0.connector.store(Arc::new(connector));
    }

    /// Sends a request to an `http` or `https` URI once, over a pooled connection, and returns its reply, whose body may
    /// still be arriving.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub async fn request(&self, request: &Request<Bytes>) -> Result<Reply, HttpError> {
        let response = self.send(request.into(), ConnectionChoice::Pooled).await?;
        Ok(self.read(response, None))
    }

    /// Sends a request and returns the response, whose body may still be arriving.
    ///
    /// An idle connection that its server closed meanwhile is replaced, as long as nothing was sent over it.
    pub(crate) async fn send(
        &self,
        request: HttpRequest<'_>,
        choice: ConnectionChoice,
    ) -> Result<Response<ResponseBody>, HttpError> {
        let silence = self.0.options.silence;
        let pool = match choice {
            ConnectionChoice::Fresh => None,
            ConnectionChoice::Pooled => self.find_pool(request.uri),
        };
        loop {
            let idle = pool.as_ref().and_then(OriginPool::take);
            let is_reused = idle.is_some();
            let mut stream = match idle {
                Some(stream) => stream,
                // Boxed, so that the future of other calls is small.
                None => Box::pin(self.connect(request.uri)).await?,
            };
            if request
                .permit
                .is_some_and(|permit| !permit.permit_sending())
            {
                return Err(HttpError::NotPermitted);
            }
            stream.limit_silence(silence.of(request.body.len()));
            let mut round_trip = RoundTrip::new(stream, request.encode());
            match round_trip.receive_head().await {
                // Its server has closed the connection, or sent what answers no request.
                Err(_) if is_reused && !round_trip.is_begun() => {}
                Ok(head) => return Ok(body::build_response(round_trip, head, pool)),
                Err(error) => {
                    if let RoundTripError::HostSilent = error {
                        self.distrust(request.uri);
                    }
                    return Err(HttpError::RoundTrip(error));
                }
            }
        }
    }

    async fn connect(&self, uri: &Uri) -> Result<UpstreamStream, HttpError> {
        let connector = self.0.connector.load_full();
        connector.connect(uri).await.map_err(HttpError::Connect)
    }

    /// The reply with this response, held at the expense of `memory`.
    pub(crate) fn read(
        &self,
        response: Response<ResponseBody>,
        memory: Option<&Arc<MemoryShare>>,
    ) -> Reply {
        let broken = |error| ReplyError::broken(ResponseBroken(error));
        let event_bytes_max = self.0.options.event_bytes_max;
        read_http(response, event_bytes_max, memory.cloned(), broken)
    }

    /// Closes the idle connections to the origin of `uri`, and those in use after their response. If a response over one
    /// of them answered another request than its own, what the others will answer is not known either; if its host was
    /// silent over one, a request over another would wait as long.
    pub fn distrust(&self, uri: &Uri) {
        if let Some(authority) = uri.authority() {
            let is_tls = connect::is_tls(uri);
            self.0.distrust.add(is_tls, authority.as_str());
        }
    }

    /// The pool of this thread for the origin of `uri`.
    fn find_pool(&self, uri: &Uri) -> Option<OriginPool> {
        let state = &self.0;
        let make =
            || IdleConnections::new(state.options.idle_connection, Arc::clone(&state.distrust));
        let idle = state.idle.get_or(make);
        let authority = uri.authority()?;
        Some(idle.find_pool(connect::is_tls(uri), authority.as_str()))
    }
}
