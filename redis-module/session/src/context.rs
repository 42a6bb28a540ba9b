//! The inputs of a rule besides the record and the request, and its result.

use crate::names::{InstanceName, Principal, ServerName};
use crate::time::Timestamp;
use crate::tuning::Tuning;

/// Everything outside the record that a rule may depend on.
pub struct Context<'a> {
    /// The wall clock, read once for this command.
    pub now: Timestamp,
    /// The number that a new record's generation and epochs must exceed, so that a key that is created again repeats no
    /// number: not in the same millisecond, and not after the wall clock stepped back. The store keeps it for all its
    /// keys, from zero, and raises it to the result of FORGET and to [`floor_after`](Self::floor_after).
    pub floor: u64,
    /// The settings of the rules.
    pub tuning: &'a Tuning,
    /// Which workers are alive.
    pub workers: &'a dyn Liveness,
    /// What the node knows beyond the record.
    pub node: &'a dyn Node,
}

impl Context<'_> {
    /// The next number that only grows: above `highest`, and never behind the wall clock, so that a failover that
    /// lost writes does not repeat it.
    #[must_use]
    pub fn number_after(&self, highest: u64) -> u64 {
        highest.saturating_add(1).max(self.now.least_number())
    }

    /// The floor for the commands after this one. `numbers` are the [numbers](crate::record::Record::numbers_to_follow)
    /// of the record under the key; `None` if the key was dropped, when its tombstone expired or by a client. A dropped
    /// key's numbers are behind the clock, unless they were ahead of it when they were assigned; then they raised the
    /// floor at that time.
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

/// Which workers are alive, as known to the node that runs the rule. A worker is identified by its whole id.
pub trait Liveness {
    /// Whether the worker is alive. An unknown worker counts as alive for its grace period.
    fn is_alive(&self, worker: &str) -> bool;
    /// Whether the worker announced that it is draining.
    fn is_draining(&self, worker: &str) -> bool;
    /// The address at which the worker's peers reach it, if it is known.
    fn address(&self, worker: &str) -> Option<&str>;
}

/// What the node that runs the rule knows beyond the record: from its indexes and turn queues, which are derived and
/// may be incomplete. The store creates it for the key of the command.
pub trait Node {
    /// How full an instance is: its live bindings, and more if sessions were just moved away from it. Only the order
    /// matters; a node without an index returns zero for all.
    fn fullness(&self, server: &ServerName, instance: &InstanceName) -> u64;
    /// The sessions of the principal except this key; `None` if the index is incomplete, and then no cap applies.
    fn held_by(&self, principal: &Principal) -> Option<PrincipalSessions>;
    /// Whether a caller has a turn of this session: at `server`, or at any server.
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

/// A node without indexes and turns: the hash of the key alone decides the placement.
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

/// The result of a rule: its reply, and what has to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<R> {
    /// The reply.
    pub reply: R,
    /// What changed.
    pub written: RecordChange,
}

impl<R> Decision<R> {
    /// A reply with its change.
    pub const fn new(reply: R, written: RecordChange) -> Self {
        Self { reply, written }
    }
}

/// What a rule changed in the record it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordChange {
    /// Nothing: neither stored nor replicated.
    Nothing,
    /// The record's [`SessionLifetime`](crate::record::SessionLifetime) only: a TTL slid, no data changed.
    Lifetime,
    /// Anything in the record.
    Record,
    /// The record was removed.
    Removed,
}
