//! Why a rule refused a request: the stable error codes, in one table.
//!
//! Invariant: a refusal means that nothing was changed, with one exception:
//! [`Turns::withdraw`](crate::turns::Turns::withdraw).

use crate::codec::CorruptRecord;
use crate::names::{NameError, WorkerId};

/// Why a transition did not happen. The first word of the message is the stable code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such session: it was never created, has expired, or was reaped.
    #[error("NOSESSION no such session: it was never created, has expired, or was reaped")]
    NoSession,
    /// The session was ended by a command, and its tombstone has not expired.
    #[error("ENDED the session was ended")]
    Ended,
    /// The session belongs to another principal. Nothing else about it is revealed.
    #[error("DENIED the session belongs to another principal")]
    Denied,
    /// An epoch, token or generation that is not the current one.
    #[error("STALE {0}")]
    Stale(Stale),
    /// The binding is driven by a worker that is alive and is not the caller.
    #[error("OWNED the binding's owner is alive: {0}")]
    Owned(WorkerId),
    /// A live claim, turn or cleanup holds it, or its state does not allow the transition.
    #[error("BUSY {0}")]
    Busy(Busy),
    /// A cap was reached.
    #[error("LIMIT {what} {value}")]
    Limit {
        /// Which cap.
        what: &'static str,
        /// Its value.
        value: usize,
    },
    /// The principal holds as many active sessions as it may.
    #[error("LIMIT {cap} {}", least_recently_used.escape_ascii())]
    Cap {
        /// How many it may hold.
        cap: u64,
        /// The key of the least recently used one, to be ended instead.
        least_recently_used: Box<[u8]>,
    },
    /// The key holds a session with another id.
    #[error("ERR the key holds a session with another id")]
    OtherId,
    /// An argument is out of its limit or alphabet.
    #[error("ERR {0}")]
    Argument(#[from] NameError),
    /// The stored record cannot be read.
    #[error("ERR {0}")]
    Corrupt(#[from] CorruptRecord),
}

/// What was not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The binding has another epoch or token, or was dropped.
    #[error("the epoch or token given is not the binding's current one")]
    Binding,
    /// The session has another generation, or another worker is cleaning it up.
    #[error("the generation given is not the current one, or another worker holds the cleanup")]
    Generation,
    /// A later boot of the same worker name is alive.
    #[error("a later boot of this worker name is alive")]
    Boot,
    /// The ticket neither has the turn nor waits for it, or a later turn was granted.
    #[error("the ticket given has no turn here, or has lost it")]
    Turn,
    /// The node counts the worker as dead, so it would lose whatever it was granted at once.
    #[error("this node counts the worker as dead until its next WORKER.BEAT")]
    Worker,
}

/// What holds a session or blocks a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// A claim on one of its bindings is live.
    #[error("a claim is live")]
    Claim,
    /// Another worker is cleaning up.
    #[error("another worker is cleaning it up")]
    Cleaning,
    /// A caller has its turn at a server.
    #[error("a turn is held")]
    Turn,
    /// The session is still active.
    #[error("the session is active")]
    Active,
    /// The worker announced that it is draining.
    #[error("the worker is draining")]
    Draining,
    /// The worker is alive and announced another address before.
    #[error("the worker is alive with another address: a new address needs a new boot id")]
    Address,
}

impl Refusal {
    /// The stable code: the first word of the message.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSession => "NOSESSION",
            Self::Ended => "ENDED",
            Self::Denied => "DENIED",
            Self::Stale(_) => "STALE",
            Self::Owned(_) => "OWNED",
            Self::Busy(_) => "BUSY",
            Self::Limit { .. } | Self::Cap { .. } => "LIMIT",
            Self::OtherId | Self::Argument(_) | Self::Corrupt(_) => "ERR",
        }
    }
}
