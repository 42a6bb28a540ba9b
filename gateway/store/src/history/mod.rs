//! The history of a session: what has happened to it, for operators, as a bounded list of small entries beside its record.
//!
//! Invariants: nothing is decided by it, and no request waits for it; an entry has no content of messages, no argument, no
//! session id and no credential; what a newer gateway has written is shown, never refused.

mod encoding;
mod entry;
mod event;
mod queue;
mod sentence;
mod write;

pub(crate) use self::encoding::{decode, encode};
pub use self::entry::{HistoryEntry, HistoryView};
pub use self::event::{EndCause, HistoryEvent, OwnerChange, Word, word};
pub(crate) use self::queue::{HistoryQueue, QueuedEntry, QueuedHistory};
pub(crate) use self::write::HistoryWrite;
