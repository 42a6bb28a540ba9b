//! Why a commit failed, and the places where a test may end one.

use std::io;

use super::usage::TreeUsage;

/// Why nothing was committed. The old trees are unchanged, except after [`CommitError::Unfinished`], where recovery
/// completes the new ones.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A later turn has already committed: this run's gateway has lost the session.
    #[error("turn {turn} comes after turn {last} has committed")]
    Overtaken {
        /// The turn of this commit.
        turn: u64,
        /// The last one that committed.
        last: u64,
    },
    /// It would not fit.
    #[error("over the limit {limit}: {needed} needed, {allowed} allowed")]
    OverLimit {
        /// The name of the limit, as in [`Limits`](crate::Limits).
        limit: &'static str,
        /// The required amount.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// The journal on the disk is none that this version can read.
    #[error("the session's journal cannot be read")]
    UnknownJournal,
    /// The system refused a step before the commit.
    #[error("could not {step}")]
    System {
        /// Which.
        step: &'static str,
        /// How.
        #[source]
        source: io::Error,
    },
    /// The system refused a step after the commit. The next opener finishes it.
    #[error("committed, but could not {step} yet")]
    Unfinished {
        /// Which.
        step: &'static str,
        /// How.
        #[source]
        source: io::Error,
    },
}

impl CommitError {
    pub(super) fn system<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            step,
            source: source.into(),
        }
    }

    pub(super) fn unfinished<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Unfinished {
            step,
            source: source.into(),
        }
    }
}

impl TreeUsage {
    /// Whether a tree fits.
    pub(super) fn within(self, allowed: Self) -> Result<(), CommitError> {
        let over = |limit, needed, allowed| {
            Err(CommitError::OverLimit {
                limit,
                needed,
                allowed,
            })
        };
        if self.bytes > allowed.bytes {
            over("disk_bytes", self.bytes, allowed.bytes)
        } else if self.inodes > allowed.inodes {
            over("inodes", self.inodes, allowed.inodes)
        } else {
            Ok(())
        }
    }
}

/// Called after each change to the disk by a commit. Tests end the process there.
#[doc(hidden)]
pub trait Checkpoint {
    /// A change was made.
    fn reached(&mut self);
}

impl Checkpoint for () {
    fn reached(&mut self) {}
}
