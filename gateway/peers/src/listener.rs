//! The private listener, at which peers reach this gateway.
//!
//! Invariant: every connection, request and wait has a limit that does not depend on the peer being authentic. No byte
//! of a request is read before the TLS handshake has verified that its sender has a fleet key.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::client::{IDLE_CONNECTION, KEEPALIVE};
use super::refusal::PeerRefusal;
use super::service::{PeerService, RequestHandler};
use crate::fleet::FleetTls;
use mooring_usage::{FlowId, fair_task};

/// How long a peer's host may acknowledge nothing before TCP breaks the connection, in milliseconds. Longer than the limit
/// of the peer's own side: TCP also counts how long a reply is not read, and who reads it is the peer's client.
const SILENT_MAX_MS: u32 = 75_000;
/// Most concurrent connections: each stream that a client has open at a peer is one. Further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16_384;
/// Timeout for a TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Timeout from the end of one request to the head of the next. Peers close idle connections earlier, so that no
/// request meets a connection that is just being closed.
const HEADER_LIMIT: Duration = Duration::from_secs(90);
const _: () = assert!(IDLE_CONNECTION.as_secs() < HEADER_LIMIT.as_secs());
/// How long nothing is accepted after the system ran out of resources for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Limits of requests from peers.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// Most bytes of one message.
    pub body_bytes_max: usize,
}

/// Serves peers until `stopping`, and returns when the last open reply has ended. Dropping the future cuts open
/// replies.
pub async fn listen<S: PeerService>(
    listener: TcpListener,
    tls: &FleetTls,
    service: Arc<S>,
    options: ListenerOptions,
    stopping: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls.server());
    let handler = Arc::new(RequestHandler {
        service,
        body_bytes_max: options.body_bytes_max,
    });
    let mut connections = JoinSet::new();
    while !stopping.is_cancelled() {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, address)) => {
                    let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                    let stopping = stopping.clone();
                    let flow = FlowId::of_address(address.ip());
                    connections.spawn(fair_task(flow, async move {
                        let stream = tokio::select! {
                            stream = handshake(stream, address, &acceptor) => stream,
                            () = stopping.cancelled() => return,
                        };
                        if let Some(stream) = stream {
                            serve(stream, address, &handler, stopping).await;
                        }
                    }));
                }
                Err(error) => pause_after(&error).await,
            },
            Some(_) = connections.join_next() => {}
            () = stopping.cancelled() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Pauses after an error of the system, which is temporary. Errors of a single connection need no pause.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        tracing::error!(%error, "peer connections cannot be accepted");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Performs the TLS handshake; none if it is refused or fails.
async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: &TlsAcceptor,
) -> Option<TlsStream<TcpStream>> {
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%error, "a socket option of a peer connection could not be set");
    }
    let refusal = match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => match PeerRefusal::of_handshake(&error) {
            Some(refusal) => refusal,
            None => {
                tracing::debug!(%address, %error, "peer connection failed during its handshake");
                return None;
            }
        },
        Err(_) => PeerRefusal::TimedOut(HANDSHAKE_LIMIT),
    };
    refusal.record(address);
    None
}

async fn serve<S: PeerService>(
    stream: TlsStream<TcpStream>,
    address: SocketAddr,
    handler: &RequestHandler<S>,
    stopping: CancellationToken,
) {
    let service =
        service_fn(async |request| Ok::<_, Infallible>(handler.answer(request, address).await));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stopping.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    match ended {
        Ok(()) => {}
        // The body of a reply failed: the connection is cut, which tells the peer that the reply is incomplete.
        Err(error) if error.is_user() => {
            let cause = error.source().map(tracing::field::display);
            tracing::info!(%address, %error, cause, "reply to a peer aborted");
        }
        Err(error) => tracing::debug!(%address, %error, "peer connection failed"),
    }
}

/// Sets socket options. Events are small writes, which must not be delayed; streams may be silent for hours, during
/// which keepalives detect a peer that has vanished.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_user_timeout(stream, SILENT_MAX_MS)?;
    Ok(())
}
