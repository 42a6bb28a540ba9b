//! Why a command fails: the one table from causes to error codes.
//!
//! Invariant: the first word of every message is its code, in upper case. Operators count errors by it.

use std::ffi::CStr;

use mooring_session::Refusal;
use mooring_session::codec::CorruptRecord;
use mooring_session::names::NameError;

/// Why a command failed: see [`Command::run`](crate::handler::Command::run) for what it may have changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The rules refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The key holds a value that is not a hash. The message is the server's own.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// A word that the grammar does not allow.
    #[error("ERR syntax error near '{0}'")]
    Syntax(Box<str>),
    /// A required option is missing.
    #[error("ERR syntax error: {} is missing", .0.to_string_lossy())]
    Missing(&'static CStr),
    /// The key of a rate limit holds a string that RATE did not write.
    #[error("ERR corrupt rate record")]
    CorruptRate,
    /// A cap counts the sessions under a prefix, and the key has none.
    #[error("ERR CAP needs a key under one of mooring.prefixes")]
    NoPrefix,
    /// As [`Refusal::Cap`], for a caller that may not read the key that this names.
    #[error("LIMIT {0}")]
    CapOfUnreadable(u64),
    /// A session under this key would never be listed, counted or cleaned up.
    #[error("ERR the key is under none of mooring.prefixes")]
    KeyOutsidePrefixes,
    /// WORKER.WAIT does not wait while the module is being prepared for its unload.
    #[error("ERR mooring.quiesce is on: WORKER.WAIT does not wait")]
    Quiesced,
    /// Workers announce themselves to, and wait at, the primary only. The message is the server's own.
    #[error("READONLY You can't write against a read only replica.")]
    ReadOnlyReplica,
    /// The record would grow, and the server has reached maxmemory. The message is the server's own.
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    /// A defect of this module.
    #[error("ERR internal error")]
    Internal,
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<CorruptRecord> for Failure {
    fn from(error: CorruptRecord) -> Self {
        Self::Refused(error.into())
    }
}

/// The stable codes, in the order in which they are reported.
pub(crate) const CODES: [&str; 11] = [
    "NOSESSION",
    "ENDED",
    "DENIED",
    "STALE",
    "OWNED",
    "BUSY",
    "LIMIT",
    "ERR",
    "WRONGTYPE",
    "OOM",
    "READONLY",
];

/// One error of a command, for its documentation page. Errors that every command can return are documented once.
pub(crate) struct ErrorSpec {
    /// The stable code.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the pages"))]
    pub(crate) code: &'static str,
    /// When it occurs: the end of a sentence that starts with "if".
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the pages"))]
    pub(crate) when: &'static str,
}

impl ErrorSpec {
    /// There is no such session.
    pub(crate) const NO_SESSION: Self = Self::new(
        "NOSESSION",
        "there is no such session: it was never created, has expired, or was reaped",
    );
    /// It was ended.
    pub(crate) const ENDED: Self = Self::new(
        "ENDED",
        "the session was ended, and its tombstone has not expired",
    );
    /// It belongs to another principal.
    pub(crate) const DENIED: Self = Self::new(
        "DENIED",
        "the session belongs to another principal; nothing else about it is revealed",
    );
    /// The record cannot be read.
    pub(crate) const CORRUPT: Self = Self::new(
        "ERR",
        "the hash under the key is no valid record: `corrupt session record: <field>`",
    );
    /// The key is no hash.
    pub(crate) const WRONG_TYPE: Self =
        Self::new("WRONGTYPE", "the key holds a value that is not a hash");

    /// The server is a replica.
    pub(crate) const READ_ONLY_REPLICA: Self = Self::new(
        "READONLY",
        "the server is a replica: workers announce themselves to, and wait at, the primary",
    );

    /// An error of one command.
    pub(crate) const fn new(code: &'static str, when: &'static str) -> Self {
        Self { code, when }
    }
}

impl Failure {
    /// The most bytes of a client's word that an error repeats.
    const WORD_SHOWN_BYTES_MAX: usize = 64;

    /// A syntax error at `word`, which is shown escaped and truncated.
    pub(crate) fn near(word: &[u8]) -> Self {
        let shown = word
            .get(..Self::WORD_SHOWN_BYTES_MAX)
            .unwrap_or(word)
            .escape_ascii();
        Self::Syntax(shown.to_string().into())
    }

    /// The stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::WrongType => "WRONGTYPE",
            Self::OutOfMemory => "OOM",
            Self::ReadOnlyReplica => "READONLY",
            Self::CapOfUnreadable(_) => "LIMIT",
            Self::Syntax(_)
            | Self::Missing(_)
            | Self::CorruptRate
            | Self::NoPrefix
            | Self::KeyOutsidePrefixes
            | Self::Quiesced
            | Self::Internal => "ERR",
        }
    }
}
