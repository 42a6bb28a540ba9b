//! The host's access to untrusted trees: reading them, and committing what a run wrote.
//!
//! Invariant: trees are untrusted. Every access is a single `openat2` that stays beneath its directory, on its mount,
//! and follows no link; an entry is inspected before it is opened, and only regular files and directories ever are.
//! Work is bounded in memory, open files and stack, whatever the tree looks like.
//!
//! A session's directory contains `scratch/` and `results/`, which are the agent's, and `.mooring/`, which is the
//! host's and never mounted. Before changing a session's trees, a process takes its lock and calls [`recover`].

mod access;
mod apply;
mod browse;
mod commit;
mod commit_error;
mod copy;
mod error;
mod existing;
mod journal;
mod last_turn;
mod layer;
mod open;
mod plan;
mod read;
mod recover;
mod remove;
mod session;
mod stage;
mod staging;
mod usage;
mod work;
mod write;

pub use crate::paths::{Mount, NameFault, PathError, TreeAccess, VirtualPath, escaped};
pub use browse::{BrowseOptions, Entry, Hidden, Listing, browse};
pub use commit::{CommitReport, commit, commit_with};
pub use commit_error::{Checkpoint, CommitError};
pub use error::TreeError;
pub use open::FileKind;
pub(crate) use open::hold;
pub use plan::{RefusalReason, RefusedEntry};
pub use read::{FileContent, read, read_part};
pub use recover::{RecoveryOutcome, recover};
pub use remove::remove;
pub use session::SessionDirectory;
pub(crate) use staging::unique_name;
pub use usage::{TreeUsage, usage};
pub use work::copy_trees;
pub use write::{WriteReport, write};
