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
mod shared;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mooring_usage::for_same_user;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use shared::Shared;

pub use addresses::AddressPolicy;
pub use refusal::RefusedRequest;
pub use shared::Traffic;

/// How long nothing is accepted after the system had no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A run's proxy. Dropping it does what [`Proxy::end`] does, without an answer.
#[derive(Debug)]
pub struct Proxy {
    /// Ends it when it is dropped.
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy that answers as soon as it is given the listening socket, by the function that is returned: from any
    /// thread, once. Connections beyond `connections_max` at the same time wait to be accepted. To be called within the
    /// runtime.
    pub fn prepare(
        policy: Arc<AddressPolicy>,
        connections_max: u32,
    ) -> (Self, impl FnOnce(OwnedFd) + Send + 'static) {
        let shared = Arc::new(Shared::new(policy));
        let (end, ended) = oneshot::channel();
        let (give, given) = oneshot::channel();
        let answering = answer(Arc::clone(&shared), connections_max, given, ended);
        let task = tokio::spawn(for_same_user(answering));
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
        self.shared.take_traffic()
    }
}

/// Answers until the end.
async fn answer(
    shared: Arc<Shared>,
    connections_max: u32,
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
    let connections_max = usize::try_from(connections_max)
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
