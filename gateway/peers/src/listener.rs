//! The private listener: where the other workers reach this one.
//!
//! Invariant: every connection, request and wait has a limit, and none of them needs a request to be authentic to hold.

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
use tokio_util::sync::CancellationToken;

use super::client::{IDLE_CONNECTION, KEEPALIVE, KEEPALIVE_RETRIES};
use super::service::{Door, PeerService};
use crate::fleet::Gate;

/// Most connections at a time: each open stream of a client at another worker is one. More wait to be accepted.
const CONNECTIONS_MAX: usize = 16_384;
/// Longest time from the end of one request to the header of the next. The other workers let go of an idle connection
/// before, so that a request never meets a connection that is just being closed.
const HEADER_LIMIT: Duration = Duration::from_secs(90);
const _: () = assert!(IDLE_CONNECTION.as_secs() < HEADER_LIMIT.as_secs());
/// How long nothing is accepted after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What is taken from other workers.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// Most bytes of one message.
    pub body_bytes_max: u64,
}

/// Serves the other workers until `stopping`, and returns when the last open reply has ended; dropping it cuts them.
pub async fn listen<S: PeerService>(
    listener: TcpListener,
    gate: Arc<Gate>,
    service: Arc<S>,
    options: ListenerOptions,
    stopping: CancellationToken,
) {
    let door = Arc::new(Door {
        gate,
        service,
        body_bytes_max: options.body_bytes_max,
    });
    let mut connections = JoinSet::new();
    while !stopping.is_cancelled() {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, address)) => {
                    let door = Arc::clone(&door);
                    connections.spawn(connection(stream, address, door, stopping.clone()));
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

/// An error of one connection concerns nobody else; any other is the system's, and passes.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        tracing::error!(%error, "no connection of another worker can be accepted");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

async fn connection<S: PeerService>(
    stream: TcpStream,
    address: SocketAddr,
    door: Arc<Door<S>>,
    stopping: CancellationToken,
) {
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%error, "a socket option of a connection between workers could not be set");
    }
    let service = service_fn(|request| door.answer(request, address));
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
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection between workers broke");
    }
}

/// Events are small writes, which must not be held back; and a stream may be silent for hours, in which a host that
/// vanished would hold on to what it asked for.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_RETRIES)?;
    Ok(())
}
