//! What ENTER, LEAVE and ROUTE with TURN share: access to the turn queues of this node for one command.
//!
//! Turns are in memory only: nothing here writes to the keyspace or is replicated.

use mooring_session::events::EventMailboxes;
use mooring_session::limits::LEASE_MIN;
use mooring_session::names::{NameError, ServerName};
use mooring_session::time::{Millis, Monotonic};
use mooring_session::turns::{TurnContext, TurnRequest, TurnStatus, Turns};
use mooring_session::{Liveness, Refusal, SessionPlace};

use crate::arguments::duration;
use crate::failure::ErrorSpec;
use crate::moment::Moment;
use crate::settings;

/// The errors of a request for a turn.
pub(super) const WORKER_DEAD: ErrorSpec = ErrorSpec::new(
    "STALE",
    "a turn was requested and the worker counts as dead: it must send WORKER.BEAT first",
);
/// See [`WORKER_DEAD`].
pub(super) const QUEUE_FULL: ErrorSpec = ErrorSpec::new(
    "LIMIT",
    "`mooring.turn-queue-max` callers wait for the turn already: `LIMIT turn-queue <n>`; or the node has reached \
     its limit of queues or waiting callers: `LIMIT turn-queues 65536`, `LIMIT turn-waiters 262144`",
);

/// Reads the lease of a turn.
pub(super) fn lease(word: &[u8]) -> Result<Millis, NameError> {
    duration("LEASE", LEASE_MIN, settings::turn_lease_max())(word)
}

/// Reads for how long a route is delegated.
pub(super) fn delegation(word: &[u8]) -> Result<Millis, NameError> {
    duration("DELEGATE", LEASE_MIN, settings::turn_lease_max())(word)
}

/// The parts of the module's state that turns need, borrowed for one command.
pub(super) struct Queues<'a> {
    pub(super) turns: &'a mut Turns,
    pub(super) events: &'a mut EventMailboxes,
    pub(super) workers: &'a dyn Liveness,
    pub(super) mono: Monotonic,
}

impl Queues<'_> {
    /// Asks for the turn.
    pub(super) fn enter(
        self,
        moment: &Moment<'_>,
        server: &ServerName,
        request: &TurnRequest,
    ) -> Result<TurnStatus, Refusal> {
        let (turns, mut context, place) = self.at(moment);
        turns.enter(&place, server, request, &mut context)
    }

    /// Passes the turn on, or leaves the queue.
    pub(super) fn leave(
        self,
        moment: &Moment<'_>,
        server: &ServerName,
        ticket: &str,
    ) -> Result<(), Refusal> {
        let (turns, mut context, place) = self.at(moment);
        turns.leave(&place, server, ticket, &mut context)
    }

    /// Removes from the queue all callers that wait under a ticket with this prefix.
    pub(super) fn withdraw(
        self,
        moment: &Moment<'_>,
        server: &ServerName,
        ticket_prefix: &str,
    ) -> Result<usize, Refusal> {
        let (turns, mut context, place) = self.at(moment);
        turns.withdraw(&place, server, ticket_prefix, &mut context)
    }

    fn at<'b>(self, moment: &Moment<'_>) -> (&'b mut Turns, TurnContext<'b>, SessionPlace)
    where
        Self: 'b,
    {
        let context = TurnContext {
            now: moment.now,
            mono: self.mono,
            limits: settings::turn_limits(),
            workers: self.workers,
            events: self.events,
        };
        let place = SessionPlace::new(moment.database, moment.key.as_bytes());
        (self.turns, context, place)
    }
}
