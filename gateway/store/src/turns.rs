//! Turns: one call at a time to one server of one session, in the order of arrival.
//!
//! Redis keeps the order over the whole fleet. The other stores keep it among the callers of one process, which is all
//! of a fleet of one; several gateways over one embedded file keep it each for itself.

use std::time::{Duration, Instant};

use mooring_session::names::{Principal, ServerName, Token, WorkerId};
use mooring_session::record::SessionState;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::time::Millis;
use mooring_session::turns::{self, TurnStatus};
pub use mooring_session::turns::{Line, TurnHolder, TurnScope};

use crate::error::StoreError;
use crate::key::SessionKey;
use crate::status::AnsweredBy;

/// The name of the command.
pub(super) const LEAVE: &str = "SESSION.LEAVE";

/// An ENTER: a ROUTE, and the turn of the session at that server.
#[derive(Clone, Debug)]
pub struct EnterRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// Which server is to be called.
    pub server: ServerName,
    /// The worker of the call. [`wait_for_events`](crate::Store::wait_for_events) reports the turn to it.
    pub worker: WorkerId,
    /// This call: random, chosen by the worker. The same ticket again renews the lease.
    pub ticket: Token,
    /// The lease of the turn, unless it is renewed. From 10 ms to the server's maximum, 2 s by default.
    pub lease: Millis,
    /// The queue to enter.
    pub line: Line,
    /// Whether the turn is for this call alone, or if it can be, for the next calls of this worker too.
    pub scope: TurnScope,
    /// The number of the turn that it had, to reclaim it after Redis restarted or failed over.
    pub held: Option<u64>,
}

/// The answer of ENTER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnterReply {
    /// The route, as in the reply of ROUTE.
    pub routed: RouteReply,
    /// The turn's number; none while the caller waits for it.
    pub turn: Option<u64>,
    /// If the turn is delegated: for how long from this command on the worker may give it to its next calls without
    /// asking. None if it is for this call alone.
    pub delegated_for: Option<Millis>,
    /// Who has the turn, where the caller waits and the store knows.
    pub holder: Option<TurnHolder>,
    /// The store that assigned the turn: memory orders only this worker's callers, not those of other workers.
    pub answered_by: AnsweredBy,
}

/// The reply to a ROUTE that also asks to use the route without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegatedRoute {
    /// The route.
    pub routed: RouteReply,
    /// If it is delegated: for how long from this command on. The worker is notified of changes.
    pub delegated_for: Option<Millis>,
}

/// A LEAVE.
#[derive(Clone, Debug)]
pub struct LeaveRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// Of which server.
    pub server: ServerName,
    /// Who leaves.
    pub who: LeaveTarget,
}

/// Who leaves the queue of a session at a server.
#[derive(Clone, Debug)]
pub enum LeaveTarget {
    /// The ticket that has the turn, or waits for it.
    Ticket(Token),
    /// All waiting tickets with this prefix, at any worker. [`wait_for_events`](crate::Store::wait_for_events) reports it to
    /// their workers.
    WaitingUnder(Token),
}

impl EnterRequest {
    /// The ROUTE in it.
    pub(crate) fn route(&self) -> RouteRequest {
        RouteRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
        }
    }

    /// The rest of it.
    pub(crate) fn turn(&self) -> turns::TurnRequest {
        turns::TurnRequest {
            worker: self.worker.clone(),
            ticket: self.ticket.clone(),
            lease: self.lease,
            line: self.line,
            scope: self.scope,
            held: self.held,
        }
    }
}

/// What the queues of this process answer to an ENTER.
#[derive(Debug)]
pub(crate) struct QueueReply {
    pub(crate) turn: Option<u64>,
    pub(crate) delegated_for: Option<Millis>,
    pub(crate) holder: Option<TurnHolder>,
}

impl QueueReply {
    /// The reply to the request that has this status; `holder` is who has the turn if it waits.
    pub(crate) fn of(
        request: &EnterRequest,
        status: TurnStatus,
        holder: impl FnOnce() -> Option<TurnHolder>,
    ) -> Self {
        let (turn, delegated_for, holder) = match status {
            TurnStatus::Granted(number) => (Some(number), None, None),
            TurnStatus::Delegated(number) => (Some(number), Some(request.lease), None),
            TurnStatus::Waiting => (None, None, holder()),
        };
        Self {
            turn,
            delegated_for,
            holder,
        }
    }

    /// The whole reply, with the route.
    pub(crate) fn with_route(self, routed: RouteReply, answered_by: AnsweredBy) -> EnterReply {
        EnterReply {
            routed,
            turn: self.turn,
            delegated_for: self.delegated_for,
            holder: self.holder,
            answered_by,
        }
    }
}

/// A turn is released whatever the session's state; if there was none, that state is the error.
pub(crate) fn left(result: Result<(), Refusal>, state: SessionState) -> Result<(), Refusal> {
    result.map_err(|refusal| match state {
        SessionState::Active => refusal,
        SessionState::Ended => Refusal::Ended,
        SessionState::Expired => Refusal::NoSession,
    })
}

/// A turn that no caller waits to see ended.
pub(crate) trait TurnEnding: Send + 'static {
    /// The session of the turn.
    fn key(&self) -> &SessionKey;

    /// The turn.
    fn turn(&self) -> &LeaveRequest;

    /// Evaluates the result of the first attempt, which began at `started`; `None` if there is none, because the
    /// connection was lost.
    fn attempted(self, started: Instant, left: Option<Result<(), StoreError>>);

    /// Tries again in a task, after a pause.
    fn retry(self, pause: Duration);
}
