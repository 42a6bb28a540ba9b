//! What a rule is told besides the record and the request, and what it says besides its answer.

use crate::names::{InstanceName, ServerName, WorkerId};
use crate::record::Record;
use crate::time::{Millis, Timestamp};

/// Everything outside the record that a rule may depend on.
pub struct Context<'a> {
    /// The wall clock, read once for this command.
    pub now: Timestamp,
    /// The number that a new record's generation and epochs must exceed, so that a key created anew repeats nothing:
    /// not in the same millisecond, and not after the wall clock stepped back. The store keeps it for all its keys,
    /// from zero, and raises it to what FORGET answers and to [`floor_after`](Self::floor_after).
    pub floor: u64,
    /// The settings of the rules.
    pub tuning: &'a Tuning,
    /// Which workers are alive.
    pub workers: &'a dyn Liveness,
    /// How many live bindings each instance has.
    pub load: &'a dyn Load,
}

impl Context<'_> {
    /// The next number that only grows: above `highest`, and never behind the wall clock, so that a failover that
    /// lost writes does not repeat it.
    #[must_use]
    pub fn number_after(&self, highest: u64) -> u64 {
        highest.saturating_add(1).max(self.now.unix_ms())
    }

    /// The floor for the commands after this one, now that `record` stands under the key; none where the key was
    /// dropped, at its tombstone's end or by hand. A dropped key's numbers are behind the clock, unless they were
    /// ahead of it when they were given, and then they raised the floor at that time.
    #[must_use]
    pub fn floor_after(&self, record: Option<&Record>) -> u64 {
        let now = self.now.unix_ms();
        let numbers = record.map_or(now, |record| record.generation.max(record.highest_epoch));
        if record.is_some() && numbers <= now {
            return self.floor;
        }
        self.floor.max(numbers)
    }
}

/// The settings of the rules. Ranges and defaults are those of the module's settings of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The record outlives its last use by this many times its TTL. 1 to 10.
    pub tombstone_ratio: u64,
    /// ... and its expiry or end by at least this long.
    pub tombstone_min: Millis,
    /// A touch is written when one `touch_step`-th of the TTL has passed since the last written one. 1 to 1000.
    pub touch_step: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            tombstone_ratio: 2,
            tombstone_min: Millis::new(600_000),
            touch_step: 16,
        }
    }
}

/// Who is alive, as the node that runs the rule knows it.
pub trait Liveness {
    /// Whether the worker is alive. A worker never heard of counts as alive for its grace.
    fn is_alive(&self, worker: &WorkerId) -> bool;
    /// Whether the worker announced that it is draining.
    fn is_draining(&self, worker: &WorkerId) -> bool;
    /// Where the worker's peers reach it, if it is known.
    fn address(&self, worker: &WorkerId) -> Option<&str>;
}

/// How full instances are, as far as the node that runs the rule knows.
pub trait Load {
    /// Live bindings of `server` on `instance`; none where the index is not whole.
    fn live_bindings(&self, server: &ServerName, instance: &InstanceName) -> Option<u64>;
}

/// No index: placement goes by the hash of the key alone.
pub struct NoLoad;

impl Load for NoLoad {
    fn live_bindings(&self, _server: &ServerName, _instance: &InstanceName) -> Option<u64> {
        None
    }
}

/// An answer, and what has to be written for it to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided<R> {
    /// The answer.
    pub reply: R,
    /// What changed.
    pub written: Written,
}

impl<R> Decided<R> {
    /// An answer with what it wrote.
    pub const fn new(reply: R, written: Written) -> Self {
        Self { reply, written }
    }
}

/// What a rule changed in the record it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// Nothing: neither stored nor replicated.
    Nothing,
    /// The record's [`Life`](crate::record::Life) alone: a TTL slid, no data changed.
    Life,
    /// Anything in the record.
    Record,
    /// The record is gone.
    Removed,
}
