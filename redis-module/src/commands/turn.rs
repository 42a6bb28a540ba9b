//! What ENTER, LEAVE and ROUTE with TURN share: the queues of this node, asked on behalf of one command.
//!
//! Turns are in memory alone: nothing here writes to the keyspace or is replicated.

use mooring_session::limits::LEASE_MIN;
use mooring_session::names::{NameError, ServerName};
use mooring_session::news::News;
use mooring_session::time::{Millis, Monotonic};
use mooring_session::turns::{TurnContext, TurnRequest, TurnStatus, Turns};
use mooring_session::{Liveness, Refusal, SessionPlace};

use crate::arguments::duration;
use crate::failure::ErrorSpec;
use crate::moment::Moment;
use crate::settings;

/// The errors of a turn that is asked for.
pub(super) const WORKER_DEAD: ErrorSpec = ErrorSpec::new(
    "STALE",
    "a turn was asked for and the worker counts as dead: it beats first",
);
/// See [`WORKER_DEAD`].
pub(super) const QUEUE_FULL: ErrorSpec = ErrorSpec::new(
    "LIMIT",
    "`mooring.turn-queue-max` callers wait for the turn already: `LIMIT turn-queue <n>`; or the node has as many \
     queues or waiting callers as it may: `LIMIT turn-queues 65536`, `LIMIT turn-waiters 262144`",
);

/// Reads the lease of a turn.
pub(super) fn lease(word: &[u8]) -> Result<Millis, NameError> {
    duration("LEASE", LEASE_MIN, settings::turn_lease_max())(word)
}

/// The parts of the module's state that turns need, as a command has borrowed them.
pub(super) struct Queues<'a> {
    pub(super) turns: &'a mut Turns,
    pub(super) news: &'a mut News,
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

    /// Passes the turn on, or withdraws.
    pub(super) fn leave(
        self,
        moment: &Moment<'_>,
        server: &ServerName,
        ticket: &str,
    ) -> Result<(), Refusal> {
        let (turns, mut context, place) = self.at(moment);
        turns.leave(&place, server, ticket, &mut context)
    }

    /// Takes those who wait under tickets that begin so out of the queue.
    pub(super) fn withdraw(
        self,
        moment: &Moment<'_>,
        server: &ServerName,
        beginning: &str,
    ) -> Result<usize, Refusal> {
        let (turns, mut context, place) = self.at(moment);
        turns.withdraw(&place, server, beginning, &mut context)
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
            news: self.news,
        };
        let place = SessionPlace::new(moment.database, moment.key.as_bytes());
        (self.turns, context, place)
    }
}
