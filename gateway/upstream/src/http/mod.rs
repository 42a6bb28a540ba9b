//! HTTP/1.1 to upstream servers: one exchange at a time over a connection that the caller's own task drives.
//!
//! A general client gives each connection a task, and each exchange a queue between that task and the caller's. Both cost
//! more than a small call does (decision 0066). Here the request is written and the response read by the task that waits
//! for it, so an exchange that waits has no buffer, and an idle connection nothing but its socket.
//!
//! Invariants: an error says whether a byte of the request can have left; a connection is used again only after a response
//! that is whole, to a request that was sent whole, with nothing behind it.

mod body;
mod connect;
mod head;
mod idle;
mod round_trip;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use thread_local::ThreadLocal;

pub(crate) use self::body::ResponseBody;
pub use self::connect::ConnectionError;
use self::connect::UpstreamStream;
pub(super) use self::connect::{Connector, ConnectorOptions, SilenceLimits};
use self::idle::{Distrust, IdleConnections, OriginPool};
use self::round_trip::RoundTrip;
pub use self::round_trip::RoundTripError;
use super::credential_header::CredentialHeader;

/// A request to an `http` or `https` URI. Its Host and the length of its body are added.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    /// Replaces a header of the same name.
    pub(super) credential: Option<&'a CredentialHeader>,
    pub(super) body: &'a Bytes,
}

impl<'a> From<&'a Request<Bytes>> for HttpRequest<'a> {
    fn from(request: &'a Request<Bytes>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            credential: None,
            body: request.body(),
        }
    }
}

/// Which connection a request is sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionChoice {
    /// An idle one, or a new one if there is none.
    Pooled,
    /// A new one, which is closed afterwards.
    Fresh,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// There was no connection. Nothing was sent.
    #[error(transparent)]
    Connect(ConnectionError),
    /// The connection failed. The request may have been delivered.
    #[error(transparent)]
    RoundTrip(RoundTripError),
}

/// The client: a connector, and the idle connections of each thread.
#[derive(Debug)]
pub(super) struct HttpClient {
    connector: Connector,
    idle_max: Duration,
    /// Each thread has its own: the sockets of a connection belong to the runtime that opened it.
    idle: ThreadLocal<Arc<IdleConnections>>,
    distrust: Arc<Distrust>,
}

impl HttpClient {
    /// A client that keeps idle connections for up to `idle_max`.
    pub(super) fn new(connector: Connector, idle_max: Duration) -> Self {
        Self {
            connector,
            idle_max,
            idle: ThreadLocal::new(),
            distrust: Arc::default(),
        }
    }

    /// Sends a request and returns the response, whose body may still be arriving.
    ///
    /// An idle connection that its server closed meanwhile is replaced, as long as nothing was sent over it.
    pub(super) async fn send(
        &self,
        request: HttpRequest<'_>,
        choice: ConnectionChoice,
    ) -> Result<Response<ResponseBody>, HttpError> {
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
                None => Box::pin(self.connector.connect(request.uri))
                    .await
                    .map_err(HttpError::Connect)?,
            };
            stream.limit_silence(self.connector.silence.of(request.body.len()));
            let mut round_trip = RoundTrip::new(stream, head::encode(&request));
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

    /// Closes the idle connections to the origin of `uri`, and those in use after their response. If a response over one
    /// of them answered another request than its own, what the others will answer is not known either; if its host was
    /// silent over one, a request over another would wait as long.
    pub(super) fn distrust(&self, uri: &Uri) {
        if let Some(authority) = uri.authority() {
            self.distrust.add(connect::is_tls(uri), authority.as_str());
        }
    }

    /// The pool of this thread for the origin of `uri`.
    fn find_pool(&self, uri: &Uri) -> Option<OriginPool> {
        let idle =
            (self.idle).get_or(|| IdleConnections::new(self.idle_max, Arc::clone(&self.distrust)));
        let authority = uri.authority()?;
        Some(idle.find_pool(connect::is_tls(uri), authority.as_str()))
    }
}
