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
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;
use tower::ServiceExt as _;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection was made")]
pub struct ConnectionError(#[source] Box<dyn Error + Send + Sync>);

/// How long name resolution and the TLS handshake of one attempt may take beside the TCP connection.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Timeouts and keepalive of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectorOptions {
    /// Time limit of one TCP connection.
    pub(crate) connect_timeout: Duration,
    /// Idle time before TCP sends a keepalive probe, and the interval between probes.
    pub(crate) keepalive: Duration,
    /// Unanswered probes after which TCP breaks the connection.
    pub(crate) keepalive_retries: u32,
}

/// Opens connections.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    connector: HttpsConnector<HttpConnector>,
    /// Time limit of one attempt.
    timeout: Duration,
}

impl Connector {
    /// A connector that trusts what `tls` trusts.
    pub(crate) fn new(options: ConnectorOptions, tls: rustls::ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(options.connect_timeout));
        tcp.set_keepalive(Some(options.keepalive));
        tcp.set_keepalive_interval(Some(options.keepalive));
        tcp.set_keepalive_retries(Some(options.keepalive_retries));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Self {
            connector,
            timeout: options.connect_timeout.saturating_add(HANDSHAKE_WITHIN),
        }
    }

    /// Connects to the origin of `uri`.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<UpstreamStream, ConnectionError> {
        let connecting = self.connector.clone().oneshot(uri.clone());
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let connected = connected.unwrap_or_else(|_| timed_out());
        Ok(match connected.map_err(ConnectionError)? {
            MaybeHttpsStream::Http(stream) => UpstreamStream::Tcp(stream.into_inner()),
            MaybeHttpsStream::Https(stream) => UpstreamStream::Tls(Box::new(stream.into_inner())),
        })
    }
}

/// Whether connections to this URI have TLS.
pub(super) fn is_tls(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum UpstreamStream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TokioIo<TokioIo<TcpStream>>>>),
}

impl UpstreamStream {
    pub(super) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether it can carry another request: as far as the runtime has noticed, it is open, and nothing has arrived that
    /// answers none. No task is woken when that changes.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut byte = ReadBuf::new(&mut byte);
        let looking = poll_fn(|context| Pin::new(&mut *self).poll_read(context, &mut byte));
        // A task that has used up its budget would be told that nothing has arrived.
        let looking = pin!(unconstrained(looking));
        let mut context = Context::from_waker(Waker::noop());
        looking.poll(&mut context).is_pending()
    }
}

impl Drop for UpstreamStream {
    /// Tells a server over TLS that the end is no truncation (RFC 8446, section 6.1), if that is possible at once.
    fn drop(&mut self) {
        if let Self::Tls(stream) = self {
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
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
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
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
