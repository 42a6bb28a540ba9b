//! The accept loop: every client connection is admitted within the limits, served by a task of its own, and ended without
//! losing a request when the gateway stops.
//!
//! Invariant: a connection that was established before the stop is served before the listener closes; all later ones are
//! refused, and clients go elsewhere.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{ClientConnectionOptions, serve_connection};
use super::connection_limits::ConnectionLimits;
use mooring_metrics as metrics;

/// How long the first request of a connection that was just accepted may be on its way when the gateway stops.
const LINGER: Duration = Duration::from_millis(200);
/// After the stop, a wait for a connection that the system has already: it is there, or it is not.
const AT_HAND: Duration = Duration::from_millis(1);
/// How long nothing is accepted after the system had no file or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The listener for clients.
#[derive(Debug)]
pub(super) struct ClientListener {
    pub(super) listener: TcpListener,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) options: Arc<ClientConnectionOptions>,
}

impl ClientListener {
    /// Serves until `stopping`, and returns when the last open reply has ended.
    pub(super) async fn serve(self, stopping: CancellationToken) {
        let closing = CancellationToken::new();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = next(&self.listener, &stopping) => {
                    let Some((stream, peer)) = accepted else { break };
                    match self.limits.admit(peer.ip()) {
                        Ok(permit) => {
                            let options = Arc::clone(&self.options);
                            let closing = closing.clone();
                            connections.spawn(serve_connection(stream, peer, permit, options, closing));
                        }
                        // The socket closes here: nothing of the peer is read.
                        Err(refused) => metrics::client_connection_refused(refused),
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.listener);
        sleep(LINGER).await;
        closing.cancel();
        while connections.join_next().await.is_some() {}
    }
}

/// The next connection; none where the gateway stops and the system has no more.
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

/// An error of one connection concerns nobody else; any other is the system's, and passes.
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
