//! The file `sessions.json` in which a server for the Claude program keeps which of that program's sessions belongs to
//! which session of its client:
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
//! The gateway does not keep its own sessions in it: it takes what is in one, and writes one for that server to read.
//!
//! Invariant: an entry that cannot be used is named with its reason and costs no other entry. Nothing of the file is
//! used where the file as a whole is not one JSON object.

mod date;
mod entry;
mod members;
mod read;
mod write;

pub use self::entry::{Entry, SkipReason, SkippedEntry};
pub use self::read::{ReadError, SessionFileContents, parse, read, read_from};
pub use self::write::{WriteError, text, write};

/// Largest file that is read: about a hundred times what a thousand sessions take.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Largest entry that is looked at. A good one has at most some 8 KiB, with every character of it escaped.
pub const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Longest id of a client's session, in bytes: that of a label, which holds it.
pub use super::parent::PARENT_BYTES_MAX;
/// Longest id of an agent's session, in bytes.
pub const AGENT_SESSION_BYTES_MAX: usize = mooring_session::limits::UPSTREAM_SESSION_BYTES_MAX;

#[cfg(test)]
mod tests;
