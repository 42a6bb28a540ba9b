//! The inputs of a rule besides the record and the request, and its result.

use crate::names::{InstanceName, Principal, ServerName};
use crate::time::Timestamp;
use crate::tuning::Tuning;

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
    /// What the node knows of everything but the record.
    pub node: &'a dyn Node,
}

impl Context<'_> {
    /// The next number that only grows: above `highest`, and never behind the wall clock, so that a failover that
    /// lost writes does not repeat it.
    #[must_use]
    pub fn number_after(&self, highest: u64) -> u64 {
        highest.saturating_add(1).max(self.now.least_number())
    }

    /// The floor for the commands after this one, now that a record of these
    /// [numbers](crate::record::Record::numbers_to_follow) stands under the key; none where the key was dropped, at its
    /// tombstone's end or by hand. A dropped key's numbers are behind the clock, unless they were
    /// ahead of it when they were given, and then they raised the floor at that time.
    #[must_use]
    pub fn floor_after(&self, numbers: Option<u64>) -> u64 {
        let least = self.now.least_number();
        match numbers {
            None => self.floor.max(least),
            Some(numbers) if numbers <= least => self.floor,
            Some(numbers) => self.floor.max(numbers),
        }
    }
}

/// Who is alive, as the node that runs the rule knows it. A worker is asked about by its whole id.
pub trait Liveness {
    /// Whether the worker is alive. A worker never heard of counts as alive for its grace.
    fn is_alive(&self, worker: &str) -> bool;
    /// Whether the worker announced that it is draining.
    fn is_draining(&self, worker: &str) -> bool;
    /// Where the worker's peers reach it, if it is known.
    fn address(&self, worker: &str) -> Option<&str>;
}

/// What the node that runs the rule knows of everything but the record at hand: from its indexes and its queues of
/// turns, which are derived and lenient. The store that makes it binds it to the key of the command.
pub trait Node {
    /// How full an instance is: its live bindings, and more where sessions were just moved away from it. Only the
    /// order matters, and zero for all is what a node says that does not know.
    fn fullness(&self, server: &ServerName, instance: &InstanceName) -> u64;
    /// What the principal holds beside this key; none where the index is not whole, and then no cap is kept.
    fn held_by(&self, principal: &Principal) -> Option<PrincipalSessions>;
    /// Whether somebody holds a turn of this session: at `server`, or at any.
    fn holds_turn(&self, server: Option<&ServerName>) -> bool;
}

/// The active sessions of one principal under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalSessions {
    /// Number of sessions.
    pub active: u64,
    /// The key of the least recently used session.
    pub least_recently_used: Option<Box<[u8]>>,
}

/// A node without indexes and turns: placement goes by the hash of the key alone.
pub struct NoIndex;

impl Node for NoIndex {
    fn fullness(&self, _server: &ServerName, _instance: &InstanceName) -> u64 {
        0
    }

    fn held_by(&self, _principal: &Principal) -> Option<PrincipalSessions> {
        None
    }

    fn holds_turn(&self, _server: Option<&ServerName>) -> bool {
        false
    }
}

/// What a rule decided: its answer, and what has to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<R> {
    /// The answer.
    pub reply: R,
    /// What changed.
    pub written: RecordChange,
}

impl<R> Decision<R> {
    /// An answer with the change behind it.
    pub const fn new(reply: R, written: RecordChange) -> Self {
        Self { reply, written }
    }
}

/// What a rule changed in the record it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordChange {
    /// Nothing: neither stored nor replicated.
    Nothing,
    /// The record's [`SessionLifetime`](crate::record::SessionLifetime) alone: a TTL slid, no data changed.
    Lifetime,
    /// Anything in the record.
    Record,
    /// The record is gone.
    Removed,
}
