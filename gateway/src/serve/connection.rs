//! One client connection, from accept to close.
//!
//! Invariants: a connection without an open request is closed when the limit for its next head or for its idle time is
//! reached. Neither limit ever cuts an open request. A stopping gateway says in every reply that it closes the connection,
//! and closes none on which a request may be under way.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::activity::{ConnectionActivity, OpenRequest, TrackedStream};
use super::connection_limits::ConnectionPermit;
use super::listener_tls::ListenerTls;
use super::unread_body::UnreadBody;
use crate::http::{CurrentApp, Routes, ServedApp};
use mooring_metrics::{self as metrics, ConnectionRefusal};
use mooring_router::Departure;
use mooring_usage::{ChargeEnd, for_same_user};

/// Longest head of an HTTP/1 request, in bytes; a longer one gets 431. Also the read-ahead limit for a body.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest list of header fields in HTTP/2, in bytes as RFC 9113 counts them (6.5.2).
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Flow-control window of one HTTP/2 stream.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Flow-control window of one HTTP/2 connection.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// How long an HTTP/2 connection may be silent before it is pinged, and how long the reply may take.
const PING_AFTER: Duration = Duration::from_secs(30);
/// See [`PING_AFTER`].
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// Limit for the head in a connection for health probes only, and for its handshake of TLS.
const PROBE_HEADER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a stopping gateway keeps a connection on which nothing is received. A client that makes one call after
/// another reuses its connection within this time, and the reply tells it to open another one elsewhere.
pub(super) const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// The configuration of all client connections.
#[derive(Debug)]
pub(super) struct ClientConnectionOptions {
    /// What requests are served with, and the routes.
    pub(super) app: Arc<CurrentApp>,
    /// TLS; none where clients speak HTTP in the clear.
    pub(super) tls: Option<ListenerTls>,
    /// Limit for the head of a request, and for the handshake of TLS.
    pub(super) header_timeout: Duration,
    /// Limit for a connection without an open request.
    pub(super) idle_timeout: Duration,
    /// Most concurrent requests in one HTTP/2 connection; none if HTTP/2 is disabled.
    pub(super) http2_streams_max: Option<u32>,
    /// Whether the gateway leaves its load balancers: every reply then closes its connection.
    pub(super) departure: Departure,
}

/// Serves a connection until the client or a time limit ends it. From `stopping` on, every reply tells the client to close
/// it, and it is closed once it has been idle for [`CLOSE_GRACE`].
pub(super) async fn serve_connection(
    stream: TcpStream,
    address: SocketAddr,
    permit: ConnectionPermit,
    options: Arc<ClientConnectionOptions>,
    stopping: CancellationToken,
) {
    // Events are small writes, which Nagle's algorithm would delay until the client acknowledges the previous one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let is_for_probes = permit.is_for_probes;
    let (builder, header_timeout) = match is_for_probes {
        false => (builder(&options), options.header_timeout),
        true => (probe_builder(), PROBE_HEADER_TIMEOUT),
    };
    let accepted = tokio::select! {
        accepted = AcceptedStream::accept(stream, options.tls.as_ref(), header_timeout) => accepted,
        // No request was received from the client that could be lost.
        () = after_grace(&stopping) => return,
    };
    let AcceptedStream { stream, distrusted } = match accepted {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::debug!(peer = %address, %error, "client connection refused in the TLS handshake");
            metrics::client_connection_refused(ConnectionRefusal::Tls);
            return;
        }
    };
    let served = options.app.get();
    let peer = routes_of(&served, is_for_probes).peer(address, client_certificate(&stream));
    drop(served);
    let activity = ConnectionActivity::begin(
        header_timeout,
        options.idle_timeout,
        &stopping,
        &options.departure,
    );
    let latest_session = Arc::default();
    let service = service_fn(|request: Request<Incoming>| {
        let open = activity.open_request(request.version());
        let (served, peer) = (options.app.get(), peer.clone());
        let latest_session = Arc::clone(&latest_session);
        let version = request.version();
        async move {
            let (request, unread) = UnreadBody::watch(request);
            let routes = routes_of(&served, is_for_probes);
            let reply = routes.serve(peer, latest_session, request).await;
            let mut reply = unread.read_before(reply).await;
            // HTTP/2 has GOAWAY instead.
            if version < Version::HTTP_2 && open.is_last() {
                let headers = reply.headers_mut();
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(track(reply, open))
        }
    });
    let stream = TokioIo::new(TrackedStream::new(stream, Arc::clone(&activity)));
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut overdue = pin!(activity.overdue());
    let mut outdated = pin!(async {
        tokio::select! {
            () = activity.closable(CLOSE_GRACE) => {}
            () = distrusted.cancelled() => {}
            () = peer.certificate_expired() => {}
        }
    });
    let mut is_closing = false;
    loop {
        tokio::select! {
            // What was received comes first: an idle connection is closed only if nothing was.
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(peer = %address, %error, "client connection failed");
                }
                return;
            }
            () = outdated.as_mut(), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            what = overdue.as_mut() => {
                tracing::debug!(peer = %address, what, "client connection closed");
                return;
            }
        }
    }
}

/// Returns [`CLOSE_GRACE`] after the gateway began to stop.
pub(super) async fn after_grace(stopping: &CancellationToken) {
    stopping.cancelled().await;
    tokio::time::sleep(CLOSE_GRACE).await;
}

/// A connection in the clear or, if the listener has certificates, over TLS.
type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection that may send requests.
struct AcceptedStream {
    stream: ClientStream,
    /// Cancelled when the client's certificate would be verified by others.
    distrusted: CancellationToken,
}

impl AcceptedStream {
    async fn accept(
        stream: TcpStream,
        tls: Option<&ListenerTls>,
        handshake_timeout: Duration,
    ) -> io::Result<Self> {
        let Some(tls) = tls else {
            return Ok(Self {
                stream: Either::Left(stream),
                distrusted: CancellationToken::new(),
            });
        };
        let (acceptor, distrusted) = tls.acceptor();
        let accepting = acceptor.accept(stream);
        let stream = tokio::time::timeout(handshake_timeout, accepting).await??;
        Ok(Self {
            stream: Either::Right(Box::new(stream)),
            distrusted,
        })
    }
}

/// The certificate, in DER, with which the client has proved who it is.
fn client_certificate(stream: &ClientStream) -> Option<&[u8]> {
    let Either::Right(stream) = stream else {
        return None;
    };
    let (_, tls) = stream.get_ref();
    Some(tls.peer_certificates()?.first()?)
}

/// Runs the streams of an HTTP/2 connection, each for its own user once that is known.
#[derive(Clone, Copy)]
struct StreamExecutor;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        tokio::spawn(for_same_user(stream));
    }
}

/// The routes of the connection.
fn routes_of(served: &ServedApp, is_for_probes: bool) -> &Routes {
    match is_for_probes {
        false => &served.routes,
        true => &served.probe_routes,
    }
}

fn builder(options: &ClientConnectionOptions) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor);
    builder.http1().max_buf_size(HEAD_BYTES_MAX);
    let Some(streams_max) = options.http2_streams_max else {
        return builder.http1_only();
    };
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PONG_WITHIN);
    builder
}

/// One HTTP/1 request, without keep-alive.
fn probe_builder() -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor).http1_only();
    builder
        .http1()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
}

/// Keeps the request open until the reply's body has ended.
fn track(reply: Response<Body>, open: OpenRequest) -> Response<TrackedBody> {
    reply.map(|body| TrackedBody {
        body,
        _open: open,
        _charge: ChargeEnd,
    })
}

/// The body of a reply; its request is open while it exists.
#[derive(Debug)]
struct TrackedBody {
    body: Body,
    _open: OpenRequest,
    _charge: ChargeEnd,
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
