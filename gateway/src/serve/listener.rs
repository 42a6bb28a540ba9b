//! The listener of a gateway that can stop without losing a client: connections that the system has accepted are served,
//! all later ones are refused, and clients go elsewhere.
//!
//! Invariant: a connection that was established is handed on before the listener closes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the first request of a connection that was just taken may be on its way when the gateway stops.
pub(super) const LINGER: Duration = Duration::from_millis(200);
/// After the stop, a wait for a connection that the system has already: it is there, or it is not.
const AT_HAND: Duration = Duration::from_millis(1);

/// A listener until it is told to stop.
#[derive(Debug)]
pub(super) struct Listener {
    /// None once closed.
    listener: Option<TcpListener>,
    address: SocketAddr,
    stopping: CancellationToken,
}

impl Listener {
    /// Listens until `stopping` is cancelled.
    ///
    /// # Errors
    /// The socket has no address.
    pub(super) fn new(listener: TcpListener, stopping: CancellationToken) -> std::io::Result<Self> {
        Ok(Self {
            address: listener.local_addr()?,
            listener: Some(listener),
            stopping,
        })
    }

    /// The next connection; none where the listener has closed.
    async fn next(&mut self) -> Option<(TcpStream, SocketAddr)> {
        // The trait's own way of accepting sleeps where the system has no more files.
        let mut listener = self.listener.take()?;
        let accepted = tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            accepted = axum::serve::Listener::accept(&mut listener) => Some(accepted),
        };
        let accepted = match accepted {
            Some(accepted) => accepted,
            None => match timeout(AT_HAND, listener.accept()).await {
                Ok(Ok(accepted)) => accepted,
                // Nobody is there any more: the socket closes here.
                Ok(Err(_)) | Err(_) => return None,
            },
        };
        self.listener = Some(listener);
        Some(accepted)
    }
}

impl axum::serve::Listener for Listener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self.next().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}
