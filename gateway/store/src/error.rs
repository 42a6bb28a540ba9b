//! Why a store did not execute a command.
//!
//! Invariant: every variant maps to one kind of reply. A refusal is about the session; every other error is about the
//! store, says nothing about the session, and becomes 503 with Retry-After, never 404.

use std::path::PathBuf;

use mooring_session::Refusal;

/// Why a command got no answer from the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The rules refused: nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store is unreachable, and the command cannot be served without it. If the reply was lost, the command may
    /// have been executed: a repetition with the same token gets the same reply.
    #[error("the store is away: {0}")]
    Away(UnavailableReason),
    /// The store was reached and cannot carry out commands at present.
    #[error("the store is not ready: {0}")]
    NotReady(NotReady),
    /// Redis is reachable but lacks commands of the module.
    #[error("redis runs without the mooring module, or with one that is too old")]
    NoModule,
    /// The module does not index this gateway's keys.
    #[error(
        "mooring.prefixes of redis does not cover store.key_prefix, so sessions cannot be counted"
    )]
    NotIndexed,
    /// The reply violates the contract: the module has another version, or it is not the module.
    #[error("unreadable reply to {command}: {problem}")]
    Reply {
        /// The command.
        command: &'static str,
        /// What is wrong with the reply, without values of it.
        problem: Box<str>,
    },
}

/// How the store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnavailableReason {
    /// No connection, and the last attempt to make one failed.
    #[error("no connection")]
    Disconnected,
    /// The connection was lost before the reply came.
    #[error("the connection was lost before the reply")]
    Dropped,
    /// No reply within `store.command_timeout_ms`.
    #[error("no reply in time")]
    TimedOut,
    /// The gateway serves from memory, which does not know enough about this session.
    #[error("the session is not known in memory")]
    Unknown,
    /// The gateway serves from memory, and other gateways, which would not know a session that it makes, may exist.
    #[error("other gateways would not know a session that is made now")]
    NotAlone,
    /// The store has returned and is being reconciled.
    #[error("it has just returned")]
    Reconciling,
}

/// Why a store that was reached cannot carry out commands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Redis answered with this code and text: `NOPERM`, `LOADING`, `READONLY`, `OOM`, `MISCONF`, `CLUSTERDOWN`, `BUSY`
    /// (a script) ...
    #[error("redis answered {0}")]
    Answered(Box<str>),
    /// The primary of a cluster that serves this key cannot be reached, and others serve other keys. The command was not
    /// sent, or a repetition changes nothing more.
    #[error("the redis primary {0} is away")]
    PrimaryAway(Box<str>),
    /// The connection to that primary was lost before the reply. The command may have been executed.
    #[error("the connection to the redis primary {0} was lost before the reply")]
    PrimaryLost(Box<str>),
    /// Another process held the write lock for too long, or too many commands wait.
    #[error("the file is busy")]
    Locked,
    /// Reading or writing the file failed.
    #[error("the file cannot be read or written: {0}")]
    File(Box<str>),
    /// The store's thread has ended.
    #[error("the store has stopped")]
    Stopped,
}

impl NotReady {
    /// Whether the server's user lacks a right.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Answered(text) if text.starts_with("NOPERM"))
    }

    /// Whether a primary is being replaced, and nothing was changed that a repetition would change again.
    pub(crate) fn is_of_failover(&self) -> bool {
        match self {
            Self::Answered(text) => ["READONLY", "CLUSTERDOWN"]
                .iter()
                .any(|code| text.starts_with(code)),
            Self::PrimaryAway(_) => true,
            _ => false,
        }
    }

    /// Whether one primary of a cluster cannot be reached.
    pub(crate) const fn is_of_primary(&self) -> bool {
        matches!(self, Self::PrimaryAway(_) | Self::PrimaryLost(_))
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The embedded file or its directory could not be made, locked or moved aside.
    #[error("cannot make, lock or move {path}")]
    Place {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The embedded file could not be opened.
    #[error("cannot open the store's file {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A newer mooring wrote the file.
    #[error(
        "the store's file {path} has schema version {found}; this version of mooring reads up to {known}"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest that is understood.
        known: i64,
    },
    /// The thread of the embedded store could not be started.
    #[error("cannot start the store's thread")]
    Thread(#[source] std::io::Error),
    /// Redis cannot be reached, and `store.on_unavailable` is `fail`; or it was reached, and refuses this client or lacks
    /// what this gateway needs. The text has the address without credentials.
    #[error("{0}")]
    Redis(Box<str>),
}
