//! Whether a connection is in use, as the rest of the gateway sees it.

use tokio::time::Instant;

/// Whether a server is in use.
///
/// Uses are all messages of the client except pings, answers of the server, and other messages of the server on a
/// stream that is being read. An open, silent stream is not a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A request of the client or of the server is unanswered.
    Busy,
    /// No request is unanswered.
    Idle {
        /// When the server was last used.
        since: Instant,
    },
    /// The server has ended, or was stopped for being idle.
    Stopped,
}
