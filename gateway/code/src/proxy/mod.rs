//! The one way out to public addresses for code that may use it: an HTTP proxy on a socket that listens inside the
//! sandbox, and is answered here.
//!
//! `CONNECT` and requests with a whole `http` address are served, one for each connection. The name is looked up here,
//! every address that it has is checked, and the connection goes to one of those that were checked: a name that means
//! something else a moment later changes nothing. Redirects are the client's own next request.
//!
//! Invariant: no byte goes to an address that the policy does not allow, and nothing of a proxy outlives [`Proxy::end`].

mod addresses;
mod connection;
mod egress;
mod refusal;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mooring_usage::for_same_user;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

pub use addresses::AddressPolicy;
pub use refusal::RefusedRequest;

/// How long nothing is accepted after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Most refusals that are reported of one run. All are counted.
pub const REPORTED_MAX: u8 = 100;

/// The options of one run's proxy.
pub struct ProxyOptions {
    /// Where it may connect to.
    pub policy: Arc<AddressPolicy>,
    /// Most connections at the same time. Further ones wait to be accepted.
    pub connections_max: u32,
    /// Called for each of the first [`REPORTED_MAX`] refusals of a run. It must not block.
    pub on_refused: Box<dyn Fn(&RefusedRequest) + Send + Sync>,
}

impl fmt::Debug for ProxyOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProxyOptions")
            .field("policy", &self.policy)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

/// The traffic of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Egress connections made.
    pub connections: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Bytes sent by the program.
    pub sent_bytes: u64,
    /// Bytes from outside to the program.
    pub received_bytes: u64,
}

/// A run's proxy. Dropping it does what [`Proxy::end`] does, without an answer.
#[derive(Debug)]
pub struct Proxy {
    /// Ends it when it is dropped.
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// The state shared by all connections of a proxy.
#[derive(Debug)]
struct Shared {
    options: ProxyOptions,
    connections: AtomicU64,
    refused: AtomicU64,
    sent_bytes: Arc<AtomicU64>,
    received_bytes: Arc<AtomicU64>,
}

impl Shared {
    fn refuse(&self, refused: &RefusedRequest) {
        if self.refused.fetch_add(1, Ordering::Relaxed) < u64::from(REPORTED_MAX) {
            tracing::info!(
                destination = ?refused.destination,
                reason = refused.why.as_str(),
                address = ?refused.why.address(),
                "egress request refused"
            );
            (self.options.on_refused)(refused);
        }
    }
}

impl Proxy {
    /// A proxy that answers as soon as it is given the listening socket, by the function that is returned: from any
    /// thread, once. To be called within the runtime.
    pub fn prepare(options: ProxyOptions) -> (Self, impl FnOnce(OwnedFd) + Send + 'static) {
        let shared = Arc::new(Shared {
            options,
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            sent_bytes: Arc::default(),
            received_bytes: Arc::default(),
        });
        let (end, ended) = oneshot::channel();
        let (give, given) = oneshot::channel();
        let task = tokio::spawn(for_same_user(answer(Arc::clone(&shared), given, ended)));
        let proxy = Self { end, task, shared };
        (proxy, move |listener| {
            // A proxy that has ended closes it.
            let _ = give.send(listener);
        })
    }

    /// Closes the listening socket and every connection, and waits until nothing of them runs any more.
    pub async fn end(self) -> Traffic {
        drop(self.end);
        // It neither panics nor is cancelled; where the runtime ends first, this is not read.
        let _ = self.task.await;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            connections: count(&self.shared.connections),
            refused: count(&self.shared.refused),
            sent_bytes: count(&self.shared.sent_bytes),
            received_bytes: count(&self.shared.received_bytes),
        }
    }
}

/// Answers until the end.
async fn answer(
    shared: Arc<Shared>,
    given: oneshot::Receiver<OwnedFd>,
    mut ended: oneshot::Receiver<()>,
) {
    let listener = tokio::select! {
        // The value is never sent: this is the end of the sender.
        _ = &mut ended => return,
        given = given => match given {
            Ok(listener) => listener,
            // The run has not come so far.
            Err(_) => return,
        },
    };
    let listener = match adopt(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "listening socket of a sandbox unusable");
            return;
        }
    };
    let connections_max = usize::try_from(shared.options.connections_max)
        .unwrap_or(usize::MAX)
        .max(1);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < connections_max => match accepted {
                Ok((client, _)) => {
                    connections.spawn(for_same_user(connection::serve(client, Arc::clone(&shared))));
                }
                // Of one connection, or of this process, which has to close something first.
                Err(error) => {
                    tracing::debug!(%error, "sandbox connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

fn adopt(listener: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
