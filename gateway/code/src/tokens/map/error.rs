//! Why a map of tokens cannot be used. Nothing goes out then.

use rustix::io::Errno;

/// Why a map of tokens cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokensError {
    /// The file could not be made or opened.
    #[error("the session's tokens could not be opened: {0}")]
    Open(Errno),
    /// It is no regular file.
    #[error("the session's tokens are not in a regular file")]
    NotAFile,
    /// The file system refused the lock.
    #[error("the session's tokens could not be locked: {0}")]
    Lock(Errno),
    /// Another process held the lock for the whole wait.
    #[error("the session's tokens are busy: lock not acquired within {waited_ms} ms")]
    Busy {
        /// How long was waited.
        waited_ms: u64,
    },
    /// The file could not be read.
    #[error("the session's tokens could not be read: {0}")]
    Read(Errno),
    /// The file could not be written.
    #[error("the session's tokens could not be written: {0}")]
    Write(Errno),
    /// It was written by a later version of the gateway.
    #[error("the session's tokens have version {0}, which is newer than this gateway reads")]
    Newer(u32),
    /// Its first line is none of this gateway's, or it became shorter.
    #[error("the file of the session's tokens is damaged")]
    Damaged,
    /// It is encrypted with another key.
    #[error("the session's tokens are encrypted with another key than code.tokens_key_file has")]
    WrongKey,
    /// It is encrypted, and there is no key.
    #[error("the session's tokens are encrypted, and code.tokens_key_file is not set")]
    NoKey,
    /// There is a key, and it is not encrypted.
    #[error("the session's tokens are from before code.tokens_key_file was set, and not encrypted")]
    NotEncrypted,
    /// The system gave no random bytes, or refused to encrypt.
    #[error("a token could not be encrypted")]
    Encrypt,
    /// The task that worked on it ended before it did.
    #[error("the tokenizer task failed")]
    GivenUp,
}
