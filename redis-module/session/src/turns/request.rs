//! The requests to [`Turns`](super::Turns), and their context.

use crate::context::Liveness;
use crate::events::EventMailboxes;
use crate::names::{Token, WorkerId};
use crate::time::{Millis, Monotonic, Timestamp};

/// The request of ENTER.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// The worker that is notified of a grant.
    pub worker: WorkerId,
    /// Identifies the call: random, chosen by the worker.
    pub ticket: Token,
    /// How long the turn is held unless it is renewed. From [`LEASE_MIN`](crate::limits::LEASE_MIN) to
    /// [`TurnLimits::lease_max`].
    pub lease: Millis,
    /// The line in which it waits.
    pub line: Line,
    /// What it asks for.
    pub scope: TurnScope,
    /// The number of the turn that it held, to reclaim it after a restart or a failover. 1 to
    /// [`TURN_NUMBER_MAX`](crate::limits::TURN_NUMBER_MAX).
    pub held: Option<u64>,
}

/// For whom a caller asks for the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnScope {
    /// For one call.
    #[default]
    Call,
    /// For one call, and if it can be, for the next calls of its worker too: see [`TurnStatus::Delegated`].
    Delegation,
}

/// The line in which a caller waits. Each line is first in, first out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// Before all callers in the other line: for a call that passed its turn on while it waited for its client.
    First,
    /// At the end of the queue.
    Last,
}

/// The reply of ENTER: whether the caller has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnStatus {
    /// The caller has the turn, with this number.
    Granted(u64),
    /// The same, and until the lease lapses its worker may give the turn to its next calls without asking. It is
    /// notified when another caller waits, and then leaves after the current call.
    Delegated(u64),
    /// The caller waits, and its worker will get an event.
    Waiting,
}

/// The settings of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// How many callers may wait for one turn. 1 to [`TURN_QUEUE_MAX`](crate::limits::TURN_QUEUE_MAX).
    pub queue_max: usize,
    /// The longest lease.
    pub lease_max: Millis,
}

/// Everything outside the queues that a step may depend on, and where it posts events.
pub struct TurnContext<'a> {
    /// The wall clock: only for the numbers of turns.
    pub now: Timestamp,
    /// The monotonic clock: for every deadline.
    pub mono: Monotonic,
    /// The settings.
    pub limits: TurnLimits,
    /// Which workers are alive.
    pub workers: &'a dyn Liveness,
    /// Where events are posted.
    pub events: &'a mut EventMailboxes,
}

/// Counters since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnFigures {
    /// Granted turns, reclaimed ones included.
    pub granted: u64,
    /// Callers that had to wait.
    pub waited: u64,
    /// Turns that were delegated to the worker of their caller. A renewal is none.
    pub delegated: u64,
    /// Delegations of which the worker was notified that another caller waits.
    pub recalled: u64,
    /// Turns that were not ended by their holder but by a lapsed lease, a dead worker, a grant that was not picked up,
    /// a later turn that was reclaimed, or the cancellation of their call.
    pub lost: u64,
}
