//! What a connection is doing, as the rest of the worker sees it.

use tokio::time::Instant;

/// Whether a server is in use.
///
/// A use is every message of the client but a ping, every answer of the server, and everything else it says on a stream
/// that somebody reads. An open stream on which nothing is said is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A request of the client, or one of the server to the client, waits for its answer.
    Busy,
    /// No request waits.
    Idle {
        /// When the server was used last.
        since: Instant,
    },
    /// There is no server any more: it has ended, or was stopped because it was idle.
    Stopped,
}
