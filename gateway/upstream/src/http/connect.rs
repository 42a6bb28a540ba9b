//! Connections to origins: name resolution, TCP and, for `https`, TLS.

use std::error::Error;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tower::ServiceExt as _;

use crate::reach::UNREACHED_LOST_AFTER;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection was made")]
pub struct ConnectionError(#[source] Box<dyn Error + Send + Sync>);

/// How long name resolution and the TLS handshake of one attempt may take beside the TCP connection.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// A request whose body is longer than this many bytes may fill what its server keeps for it before it reads: half of the
/// 64 KiB that are usual. TCP then waits for the server's program, and no longer for its host only.
const LARGE_BODY_BYTES: usize = 32 * 1024;

/// How long a server's host may acknowledge nothing, neither data nor a probe, before TCP breaks the connection. A host
/// acknowledges while its program is busy or hangs, so silence says that it has vanished, or the way to it.
#[derive(Clone, Copy, Debug)]
pub struct SilenceLimits {
    /// For most requests.
    pub usual: Duration,
    /// For a request with a large body: here TCP also counts how long the program takes nothing more of it
    /// (TCP_USER_TIMEOUT and a window of 0).
    pub large_body: Duration,
    /// How long nothing may arrive before TCP sends a probe. The limits count from then on as well.
    pub probe_after: Duration,
    /// The interval between probes.
    pub probe_every: Duration,
}

/// Calls have no time limit, so without these one over a connection to a host that has vanished would never end. As long
/// as connects may fail: both say the same of the host.
impl Default for SilenceLimits {
    fn default() -> Self {
        Self {
            usual: UNREACHED_LOST_AFTER,
            large_body: Duration::from_secs(60),
            // Two probes must be lost.
            probe_after: Duration::from_secs(1),
            probe_every: Duration::from_secs(1),
        }
    }
}

impl SilenceLimits {
    /// The limit for a request with a body of so many bytes.
    pub(super) const fn of(&self, body_bytes: usize) -> Duration {
        if body_bytes > LARGE_BODY_BYTES {
            self.large_body
        } else {
            self.usual
        }
    }
}

/// Opens connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    connector: HttpsConnector<HttpConnector>,
    /// Time limit of one attempt.
    timeout: Duration,
}

impl Connector {
    /// A connector that trusts what `tls` trusts.
    pub(super) fn new(
        connect_timeout: Duration,
        silence: SilenceLimits,
        tls: rustls::ClientConfig,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect_timeout));
        tcp.set_keepalive(Some(silence.probe_after));
        tcp.set_keepalive_interval(Some(silence.probe_every));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Self {
            connector,
            timeout: connect_timeout.saturating_add(HANDSHAKE_WITHIN),
        }
    }

    /// Connects to the origin of `uri`.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<UpstreamStream, ConnectionError> {
        let connecting = self.connector.clone().oneshot(uri.clone());
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let connected = connected.unwrap_or_else(|_| timed_out());
        Ok(UpstreamStream {
            silence: None,
            transport: match connected.map_err(ConnectionError)? {
                MaybeHttpsStream::Http(stream) => Either::Left(stream.into_inner()),
                MaybeHttpsStream::Https(stream) => Either::Right(Box::new(stream.into_inner())),
            },
        })
    }
}

/// Whether connections to this URI have TLS.
pub(super) fn is_tls(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct UpstreamStream {
    transport: Transport,
    /// The limit that is set on the socket; none yet on a new one, for which connecting has its own.
    silence: Option<Duration>,
}

type Transport = Either<TcpStream, Box<TlsStream<TokioIo<TokioIo<TcpStream>>>>>;

impl UpstreamStream {
    pub(super) const fn is_tls(&self) -> bool {
        matches!(self.transport, Either::Right(_))
    }

    fn socket(&self) -> &TcpStream {
        match &self.transport {
            Either::Left(stream) => stream,
            Either::Right(stream) => stream.get_ref().0.inner().inner(),
        }
    }

    /// Sets how long the host may be silent, see [`SilenceLimits`].
    pub(super) fn limit_silence(&mut self, limit: Duration) {
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        // A kernel that has no such limit is left with its own.
        if self.silence != Some(limit) && set_tcp_user_timeout(self.socket(), limit_ms).is_ok() {
            self.silence = Some(limit);
        }
    }

    /// Whether nothing has arrived that was not read, as the kernel knows: neither bytes nor the end. Bytes of TLS may be
    /// a message to TLS itself; they count, because what they are is known only after the request was sent.
    pub(super) fn is_silent(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recv(self.socket(), &mut byte, flags);
        matches!(peeked, Err(Errno::WOULDBLOCK))
    }

    /// Whether it can carry another request: as far as the runtime has noticed, it is open, and nothing has arrived that
    /// answers none. No task is woken when that changes.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut byte = ReadBuf::new(&mut byte);
        let looking = poll_fn(|context| Pin::new(&mut *self).poll_read(context, &mut byte));
        // A task that has used up its budget would always see `Pending`.
        let looking = pin!(unconstrained(looking));
        let mut context = Context::from_waker(Waker::noop());
        looking.poll(&mut context).is_pending()
    }
}

impl Drop for UpstreamStream {
    /// Tells a server over TLS that the end is no truncation (RFC 8446, section 6.1), if that is possible at once.
    fn drop(&mut self) {
        if let Either::Right(stream) = &mut self.transport {
            let closing = pin!(unconstrained(stream.shutdown()));
            let _ = closing.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_read(context, buffer)
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}
