//! Whether a connection is in use, as the rest of the gateway sees it, and how long it may be idle.

use std::time::Duration;

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

/// A client that has just initialized a server opens its stream and calls it within this time.
const LEAST: Duration = Duration::from_secs(1);

/// How long a server may be idle before it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLimits {
    /// Where its client listens, or never has.
    pub attended: Duration,
    /// Since its client's stream has ended, where the client has not opened it again: it has probably gone.
    pub left: Duration,
    /// Where the client does not listen and has never called the server, which has nothing to lose.
    pub unused: Duration,
}

impl IdleLimits {
    /// The limits of a server that may be idle for this long while its client is connected.
    #[must_use]
    pub fn of(attended: Duration) -> Self {
        let least = LEAST.min(attended);
        Self {
            attended,
            left: (attended / 5).max(least),
            unused: (attended / 10).max(least),
        }
    }

    /// The same limit, whatever the client does.
    #[must_use]
    pub const fn all(limit: Duration) -> Self {
        Self {
            attended: limit,
            left: limit,
            unused: limit,
        }
    }
}

/// A server that was stopped for being idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedServer {
    /// Its session has called it, and loses what it remembered.
    Used,
    /// Its session has only initialized it and read its lists.
    Unused,
}
