//! Egress: from the destination that a program requested to a connection to a checked address.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Authority;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::refusal::RefusalReason;
use super::shared::Shared;

/// For a name to be looked up.
const LOOKUP_WAIT: Duration = Duration::from_secs(10);
/// For one address to answer.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// How long a connection may be idle.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Where a request is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    host: String,
    port: u16,
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum EgressError {
    #[error(transparent)]
    Refused(#[from] RefusalReason),
    #[error("{host} was not found: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("{host} did not answer: {source}")]
    Connect { host: String, source: io::Error },
}

impl Destination {
    /// The destination of an authority, by default with this port. An authority with user information is refused, since
    /// it is meant to be misread.
    pub(super) fn new(
        authority: &Authority,
        default_port: Option<u16>,
    ) -> Result<Self, RefusalReason> {
        let port = match authority.port() {
            Some(port) => Some(port.as_u16()),
            // A colon and no number.
            None if authority.as_str().ends_with(':') => None,
            None => default_port,
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        match port {
            Some(port) if !host.is_empty() && !authority.as_str().contains('@') => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            _ => Err(RefusalReason::Destination),
        }
    }

    /// Connects, to an address that was looked up once and then checked. One address that may not be connected to is
    /// enough: a name that means a public and a private one means harm.
    pub(super) async fn connect(&self, shared: &Shared) -> Result<EgressStream, EgressError> {
        let policy = &shared.policy;
        policy.check_port(self.port)?;
        let addresses = self.look_up().await?;
        (addresses.iter()).try_for_each(|address| policy.check(*address))?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match within(CONNECT_WAIT, TcpStream::connect(address)).await {
                Ok(stream) => {
                    shared.note_connection();
                    // It is the same without.
                    let _ = stream.set_nodelay(true);
                    return Ok(EgressStream {
                        stream,
                        moved_bytes: Arc::default(),
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(EgressError::Connect {
            host: self.host.clone(),
            source: last,
        })
    }

    async fn look_up(&self) -> Result<Vec<SocketAddr>, EgressError> {
        let lookup = tokio::net::lookup_host((self.host.as_str(), self.port));
        match within(LOOKUP_WAIT, lookup).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(source) => Err(EgressError::Lookup {
                host: self.host.clone(),
                source,
            }),
        }
    }
}

async fn within<T>(wait: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(wait, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// An egress connection that notices when it is idle.
#[derive(Debug)]
pub(super) struct EgressStream {
    stream: TcpStream,
    /// Both ways.
    moved_bytes: Arc<AtomicU64>,
}

impl EgressStream {
    /// Ends when this connection has been idle for a while.
    pub(super) fn idle(&self) -> impl Future<Output = ()> + Send + 'static {
        let moved = Arc::clone(&self.moved_bytes);
        async move {
            let mut before = moved.load(Ordering::Relaxed);
            loop {
                sleep(IDLE_MAX).await;
                let now = moved.load(Ordering::Relaxed);
                if now == before {
                    return;
                }
                before = now;
            }
        }
    }

    fn count(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl AsyncRead for EgressStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.count(buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for EgressStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = written {
            self.count(written);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
