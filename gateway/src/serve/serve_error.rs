//! Why serving failed to start, or stopped.

use std::net::SocketAddr;

use mooring_session::names::NameError;
use mooring_upstream::ClientError;

/// Why serving failed to start, or stopped unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A required service is unavailable or unusable; exit code 69.
    #[error("{service} cannot be used: {reason}")]
    Unavailable {
        /// The service, without credentials.
        service: String,
        /// What is wrong, and how to fix it.
        reason: String,
    },
    /// The address could not be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address as configured.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The metrics recorder could not be installed.
    #[error("metrics cannot be recorded")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
    /// The HTTP client to upstream instances could not be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The code servers could not be created.
    #[error("the code servers cannot be made")]
    Code(#[from] mooring_code::server::CodeServersError),
    /// A reload asks for more of the code servers than they were opened for.
    #[error(transparent)]
    CodeReload(#[from] mooring_code::server::SessionTtlGrowth),
    /// A configured name is invalid in the store.
    #[error(transparent)]
    Name(#[from] NameError),
    /// `mooring stdio` was given an unknown server id; exit code 64.
    #[error(
        "there is no server `{id}` in the settings; there is {known}. To name one here, write --server ID=URL or \
         --server \"ID=PROGRAM ARGUMENT...\""
    )]
    NoServer {
        /// The given id.
        id: String,
        /// The existing ids, as a list.
        known: String,
    },
    /// `mooring stdio` was given a server of kind `admin`; exit code 64.
    #[error(
        "server `{id}` is of kind admin: its tools act with the rights of their caller, and a client over standard input is not \
         authenticated. Serve it by `mooring serve`, over HTTP"
    )]
    NotOverStdio {
        /// Its id.
        id: String,
    },
    /// The session of the only client was ended by another process, or has expired.
    #[error("the session is over; the client may start again")]
    SessionOver,
    /// The accept loop ended, which would be a defect.
    #[error("the accept loop stopped")]
    Accept(#[source] tokio::task::JoinError),
    /// A thread that serves could not be started.
    #[error("a serving thread cannot be started")]
    Threads(#[source] std::io::Error),
}
