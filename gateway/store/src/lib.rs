//! The store of session records: one interface to Redis, the embedded file and memory.
//!
//! Every store carries out the same transitions by the same rules (the crate `mooring_session`), so a request and a
//! reply mean the same everywhere, and what differs is only who else sees the record. [`Store`] is cheap to clone.
//!
//! Imports go one way: [`store`], which has the interface, imports the stores ([`redis`], [`embedded`], and
//! [`fallback`], which wraps the first), and these import the files beside them, which have what all of them share.
//!
//! Invariant: an error that is not a refusal says nothing about the session, and never becomes a 404.

mod blockers;
mod clock;
mod desired_state;
mod embedded;
mod error;
mod events;
mod fallback;
mod history;
mod key;
mod lock;
mod query;
mod queues;
mod rate;
mod reaping;
mod redis;
mod request_name;
mod request_parts;
mod session;
mod session_counts;
mod status;
mod store;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
#[cfg(test)]
mod tests;
mod transition;
mod turns;
mod user_slug;
mod workers;

pub use self::blockers::{
    CleaningView, SessionBlockers, TurnHolderView, TurnQueueView, WaitingCallView,
};
pub use self::clock::{rfc3339, unix_now_ms};
pub use self::desired_state::{
    AddedServer, DEFINITION_BYTES_MAX, DESIRED_BYTES_MAX, DESIRED_ITEMS_MAX, DesiredChange,
    DesiredLimit, DesiredState, NOTE_BYTES_MAX, OperatorNote, ParkedPart,
};
pub use self::error::{NotReady, OpenError, StoreError, UnavailableReason};
pub use self::events::{EventPath, WorkerEvent};
pub use self::fallback::{Loss, LossReason, Losses};
pub use self::history::{
    EndCause, HistoryEntry, HistoryEvent, HistoryView, OwnerChange, Word, word,
};
pub use self::key::{Family, InitDigest, SessionKey};
pub use self::query::{Cursor, Order, PAGE_MAX, SessionPage, SessionQuery, literal_pattern};
pub use self::rate::RateReply;
pub use self::redis::check_certificates;
pub use self::request_name::{REQUEST_KEPT, RequestName};
pub use self::request_parts::{fresh_token, labels};
pub use self::session::Session;
pub use self::session_counts::{InstanceCount, OwnerCount, SessionCounts};
pub use self::status::{AnsweredBy, RedisPrimaryView, RedisServerView, StoreMode, StoreStatus};
pub use self::store::{
    ClaimRefusal, DesiredStateError, DropGuard, EvictionOutcome, ForgetOutcome, Reaper, RoomError,
    SEALED_BYTES_MAX, SessionAccess, SessionTurn, Store, StoreOptions, StorePlace, TurnError,
    WhenAway, jittered, open, open_with,
};
pub use self::turns::{
    DelegatedRoute, EnterReply, EnterRequest, LeaveRequest, LeaveTarget, Line, TurnHolder,
    TurnScope,
};
pub use self::user_slug::UserSlug;
pub use self::workers::WorkerView;
