//! The file `sessions.json` in which a server for the Claude program maps its clients' sessions to that program's
//! sessions:
//!
//! ```json
//! {
//!   "parent-session-123": {
//!     "claudeSessionId": "eff82f41-a021-4098-80a0-95117aa3f3e4",
//!     "updatedAt": "2026-01-14T23:15:00.000Z"
//!   }
//! }
//! ```
//!
//! The gateway does not store its own sessions in it: it imports such a file, and exports one for that server.
//!
//! Invariant: an unusable entry is reported with its reason and does not affect the others. If the file as a whole is
//! not one JSON object, nothing of it is used.

mod date;
mod entry;
mod members;
mod read;
mod write;

pub use self::entry::{Entry, SkipReason, SkippedEntry};
pub use self::read::{ReadError, SessionFileContents, parse, read, read_from};
pub use self::write::{WriteError, text, write};

/// Largest file that is read: about a hundred times the size of a thousand sessions.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Largest entry that is parsed. A valid one has at most about 8 KiB, with every character escaped.
pub const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Longest id of a client's session, in bytes: the limit of the label that stores it.
pub use super::parent::PARENT_BYTES_MAX;
/// Longest id of an agent's session, in bytes.
pub const AGENT_SESSION_BYTES_MAX: usize = mooring_session::limits::UPSTREAM_SESSION_BYTES_MAX;

#[cfg(test)]
mod tests;
