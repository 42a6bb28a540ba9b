//! Each user's usage of the shared resources of a gateway: memory, calls, and processor time.
//!
//! A user's messages and replies are held in memory while they are read, changed, and written to a client that may read
//! slowly. What is held is taken from a [`MemoryBudget`], of which each user has a share. Invariants: one user takes no
//! memory beyond its share, and no more calls at once than [`UsageLimits::calls_max`]; long messages of all users
//! together leave the reserve for short ones. On each thread, users who have something to run get the same processor
//! time, see [`fair_task`].

mod bounded_cache;
mod busiest;
mod fair_queue;
mod fair_task;
mod memory;
mod memory_limit;
mod rates;
mod thread_beside;
mod transfer_share;
mod user;

pub use bounded_cache::BoundedCache;
pub use busiest::{Busiest, CallFigures};
pub use fair_task::{
    ChargeEnd, FairTask, FlowId, fair_task, for_same_user, run_beside, share_fairly, work_on_text,
};
pub use memory::{HeldMemory, MemoryBudget, MemoryShare, NoRoom, Patience, RoomWait, SharePart};
pub use rates::{KeyedRates, TokenBucket};
pub use transfer_share::TransferShare;
pub use user::{CallPermit, TooManyCalls, UsageLimits, UserUsage};

/// Most bytes of a short message. Short messages may also take the reserve of a budget, which long ones may not.
pub const SHORT_BYTES_MAX: usize = 64 * 1024;
