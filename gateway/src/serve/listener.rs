//! The accept loop: each client connection is admitted within the limits, handed to a thread that serves it, and closed
//! without losing a request when the gateway stops.
//!
//! Invariant: connections established before the stop are served before the listener closes; later ones are refused, so
//! clients use another gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{ClientConnectionOptions, serve_connection};
use super::connection_limits::ConnectionLimits;
use super::serving_threads::ServingThreads;
use mooring_metrics as metrics;

/// Connections that are accepted before whatever else is ready runs. Each costs about as long as a step of a call, so that
/// a flood of connections delays such a step by a few others.
const ACCEPTED_AT_ONCE: usize = 4;
/// How long a stopping gateway waits for the first request of a connection that was just accepted.
const LINGER: Duration = Duration::from_millis(200);
/// After the stop, the timeout for accepting connections that are already in the backlog.
const AT_HAND: Duration = Duration::from_millis(1);
/// How long nothing is accepted after the system ran out of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The listener for clients.
#[derive(Debug)]
pub(super) struct ClientListener {
    pub(super) listener: TcpListener,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) options: Arc<ClientConnectionOptions>,
    pub(super) threads: Arc<ServingThreads>,
}

impl ClientListener {
    /// Serves until `stopping`, and returns when the last open reply has ended.
    pub(super) async fn serve(self, stopping: CancellationToken) {
        let closing = CancellationToken::new();
        let mut at_once = 0;
        while let Some((stream, peer)) = next(&self.listener, &stopping).await {
            match self.limits.admit(peer.ip()) {
                Ok(permit) => {
                    let options = Arc::clone(&self.options);
                    let closing = closing.clone();
                    let served = self.threads.serve(stream, move |stream| {
                        serve_connection(stream, peer, permit, options, closing)
                    });
                    if let Err(error) = served {
                        tracing::warn!(%peer, %error, "a client connection cannot be served");
                    }
                }
                // Dropping the socket closes it; nothing was read from the peer.
                Err(refused) => metrics::client_connection_refused(refused),
            }
            at_once += 1;
            if at_once == ACCEPTED_AT_ONCE {
                at_once = 0;
                yield_now().await;
            }
        }
        drop(self.listener);
        sleep(LINGER).await;
        closing.cancel();
        self.threads.all_closed().await;
    }
}

/// The next connection; none if the gateway is stopping and the backlog is empty.
async fn next(
    listener: &TcpListener,
    stopping: &CancellationToken,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopping.cancelled() => timeout(AT_HAND, listener.accept()).await.ok()?,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => pause_after(&error).await,
        }
    }
}

/// Pauses after an error of the system, which is temporary. Errors of a single connection need no pause.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        tracing::error!(%error, "client connections cannot be accepted");
        sleep(ACCEPT_PAUSE).await;
    }
}
