//! What is asked of [`Turns`](super::Turns), and what they are told beside it.

use crate::context::Liveness;
use crate::names::{Token, WorkerId};
use crate::news::News;
use crate::time::{Millis, Monotonic, Timestamp};

/// What ENTER asks for.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// Who is told when the turn comes.
    pub worker: WorkerId,
    /// This call: random, chosen by the worker.
    pub ticket: Token,
    /// How long the turn is held unless it is renewed. From [`LEASE_MIN`](crate::limits::LEASE_MIN) to
    /// [`TurnLimits::lease_max`].
    pub lease: Millis,
    /// Where it begins to wait.
    pub line: Line,
    /// The number of the turn that it held, where it claims one again after a restart or a failover. 1 to
    /// [`TURN_NUMBER_MAX`](crate::limits::TURN_NUMBER_MAX).
    pub held: Option<u64>,
}

/// Where a caller waits. Within each line the first to come is the first to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// Before everybody who does not say so: a call that passed its turn on while it waited for its client.
    First,
    /// Behind everybody.
    Last,
}

/// The answer of ENTER: whether the caller has the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnStatus {
    /// The turn is the caller's, under this number.
    Granted(u64),
    /// The caller waits, and its worker will have news.
    Waiting,
}

/// The settings of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// How many may wait for one turn. 1 to [`TURN_QUEUE_MAX`](crate::limits::TURN_QUEUE_MAX).
    pub queue_max: usize,
    /// The longest lease.
    pub lease_max: Millis,
}

/// Everything outside the queues that a step of them may depend on, and where it says what it did.
pub struct TurnContext<'a> {
    /// The wall clock: only for the numbers of turns.
    pub now: Timestamp,
    /// The monotonic clock: for every deadline.
    pub mono: Monotonic,
    /// The settings.
    pub limits: TurnLimits,
    /// Which workers are alive.
    pub workers: &'a dyn Liveness,
    /// Where grants are told.
    pub news: &'a mut News,
}

/// What was counted since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnFigures {
    /// Turns given, those claimed again included.
    pub granted: u64,
    /// Callers that had to wait.
    pub waited: u64,
    /// Turns that ended otherwise than by their holder: by a lapsed lease, a dead worker, a grant not picked up, a
    /// later turn claimed again, or the cancellation of their call.
    pub lost: u64,
}
