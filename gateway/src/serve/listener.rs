//! The accept loop: each client connection is admitted within the limits, handed to a thread that serves it, and closed
//! without losing a request when the gateway stops.
//!
//! Invariant: a stopping gateway accepts connections for a while, in which load balancers and clients learn of the stop;
//! those that were begun by then are served, later ones are refused, so clients use another gateway. None is reset. A
//! listener that the service manager holds stays as it is: later connections wait in its queue for the next gateway.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{ClientConnectionOptions, after_grace, serve_connection};
use super::connection_limits::ConnectionLimits;
use super::serving_threads::ServingThreads;
use mooring_metrics as metrics;

/// Connections that are accepted before whatever else is ready runs. Each costs about as long as a step of a call, so that
/// a flood of connections delays such a step by a few others.
const ACCEPTED_AT_ONCE: usize = 4;
/// Once handshakes are ignored, the timeout for the next connection of those whose handshake has begun.
const AT_HAND: Duration = Duration::from_millis(1);
/// How long nothing is accepted after the system ran out of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How long and how often binding an address is tried again that is in use.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// Binds an address. A gateway that was killed while it started a program leaves a process that has its listener until
/// the program is executed (`O_CLOEXEC` of open(2)): on a busy machine, the next gateway would find the port in use.
pub(super) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(BIND_PAUSE).await;
            }
            bound => return bound,
        }
    }
}

/// The socket that accepts connections of clients.
#[derive(Debug)]
pub(super) enum ClientSocket {
    /// The gateway's own, which ends with it.
    Bound(TcpListener),
    /// The service manager's, which passes it to the next gateway as well.
    Passed(TcpListener),
}

impl ClientSocket {
    pub(super) fn listener(&self) -> &TcpListener {
        match self {
            Self::Bound(listener) | Self::Passed(listener) => listener,
        }
    }
}

/// The listener for clients.
#[derive(Debug)]
pub(super) struct ClientListener {
    pub(super) socket: ClientSocket,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) options: Arc<ClientConnectionOptions>,
    pub(super) threads: Arc<ServingThreads>,
}

impl ClientListener {
    /// Serves until `stopping`, and returns when the last open reply has ended.
    pub(super) async fn serve(self, stopping: CancellationToken) {
        // Clients are asked to close their connections, and some reconnect here before a load balancer has noticed.
        let mut closing = pin!(after_grace(&stopping));
        let mut at_once = 0;
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                () = &mut closing => break,
                next = self.next() => next,
            };
            self.hand_over(stream, peer, &stopping);
            at_once += 1;
            if at_once == ACCEPTED_AT_ONCE {
                at_once = 0;
                yield_now().await;
            }
        }
        // Nothing is done to a passed one: a filter would stay on it.
        if let ClientSocket::Bound(listener) = &self.socket {
            if let Err(error) = ignore_handshakes(listener) {
                tracing::debug!(%error, "connections that are made just now may be reset");
            }
            while let Ok((stream, peer)) = timeout(AT_HAND, self.next()).await {
                self.hand_over(stream, peer, &stopping);
            }
        }
        drop(self.socket);
        self.threads.all_closed().await;
    }

    async fn next(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.socket.listener().accept().await {
                Ok(accepted) => return accepted,
                Err(error) => pause_after(&error).await,
            }
        }
    }

    /// Hands it to a thread that serves it, or closes it where that is over a limit.
    fn hand_over(&self, stream: TcpStream, peer: SocketAddr, stopping: &CancellationToken) {
        let permit = match self.limits.admit(peer.ip()) {
            Ok(permit) => permit,
            // Dropping the socket closes it; nothing was read from the peer.
            Err(refused) => return metrics::client_connection_refused(refused),
        };
        let (options, stopping) = (Arc::clone(&self.options), stopping.clone());
        let served = self.threads.serve(stream, peer.ip(), move |stream| {
            serve_connection(stream, peer, permit, options, stopping)
        });
        if let Err(error) = served {
            tracing::warn!(%peer, %error, "a client connection cannot be served");
        }
    }
}

/// Makes the kernel drop every packet that would begin a connection. Closing a listener resets connections that were
/// not accepted, which a client cannot distinguish from a lost request; an ignored handshake is retried by the client's
/// kernel a second later (RFC 6298), and refused then.
fn ignore_handshakes(listener: &TcpListener) -> io::Result<()> {
    // Classic BPF (linux/bpf_common.h); a listener's filter reads packets from the TCP header on.
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 0x02;
    SockRef::from(listener).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_OFFSET),
        SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[tokio::test]
    async fn an_address_that_is_about_to_be_free_is_bound() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        assert!(TcpListener::bind(address).await.is_err(), "the control");
        let binding = tokio::spawn(bind(address));
        sleep(10 * BIND_PAUSE).await;
        assert!(!binding.is_finished());
        drop(held);
        let bound = binding.await.unwrap().unwrap();
        assert_eq!(bound.local_addr().unwrap(), address);
    }
}
