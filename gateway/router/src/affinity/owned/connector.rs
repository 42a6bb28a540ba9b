//! How a gateway connects to a server whose connections it owns.

use std::time::Duration;

use mooring_upstream::stdio::{ChildSpec, Children};

/// How to connect to a server.
#[derive(Debug)]
pub enum Connector {
    /// A child process.
    Stdio {
        /// What to start.
        spec: Box<ChildSpec>,
        /// The child processes of this server in this gateway.
        children: Children,
        /// Time limit from its start to its answer to `initialize`.
        start_timeout: Duration,
        /// How long it may be idle; `None` for as long as its session lives.
        idle_timeout: Option<Duration>,
    },
    /// A stream of HTTP+SSE.
    Sse,
}
