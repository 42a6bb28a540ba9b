//! Turns: one call at a time to one server of one session, in the order of arrival.
//!
//! Redis keeps the order over the whole fleet. The other stores keep it among the callers of one process, which is all
//! of a fleet of one; several gateways over one embedded file keep it each for itself.

use mooring_session::names::{Principal, ServerName, Token, WorkerId};
use mooring_session::record::Standing;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::time::Millis;
use mooring_session::turns;
pub use mooring_session::turns::Line;

use super::error::StoreError;
use super::key::SessionKey;
use super::{AnsweredBy, Store, on_backend};

/// What ENTER asks for: a ROUTE, and the turn of the session at that server.
#[derive(Clone, Debug)]
pub struct EnterRequest {
    /// Whose session it must be.
    pub principal: Principal,
    /// Which server is to be called.
    pub server: ServerName,
    /// The worker that asks. [`wait_for_events`](Store::wait_for_events) tells it when the turn comes.
    pub worker: WorkerId,
    /// This call: random, chosen by the worker. The same ticket again renews the lease.
    pub ticket: Token,
    /// How long the turn is held unless it is renewed. From 10 ms to the server's longest, 2 s by default.
    pub lease: Millis,
    /// Where it waits.
    pub line: Line,
    /// The number of the turn that it held, where it claims one again after Redis restarted or failed over.
    pub held: Option<u64>,
}

/// The answer of ENTER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnterReply {
    /// Where the calls go, as ROUTE says it.
    pub routed: RouteReply,
    /// The turn's number; none while the caller waits for it.
    pub turn: Option<u64>,
    /// Whose turn it is to give: memory keeps the order of this worker's own callers, and none across workers.
    pub answered_by: AnsweredBy,
}

/// What LEAVE asks for.
#[derive(Clone, Debug)]
pub struct LeaveRequest {
    /// Whose session it must be.
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
    /// All waiting tickets with this prefix, at any worker. Their workers learn it by
    /// [`wait_for_events`](Store::wait_for_events).
    WaitingUnder(Token),
}

impl EnterRequest {
    /// The ROUTE in it.
    pub(super) fn route(&self) -> RouteRequest {
        RouteRequest {
            principal: self.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
        }
    }

    /// The rest of it.
    pub(super) fn turn(&self) -> turns::TurnRequest {
        turns::TurnRequest {
            worker: self.worker.clone(),
            ticket: self.ticket.clone(),
            lease: self.lease,
            line: self.line,
            held: self.held,
        }
    }
}

/// A turn is passed on whatever has become of the session meanwhile; where there is none, that is what is told.
pub(super) fn left(result: Result<(), Refusal>, standing: Standing) -> Result<(), Refusal> {
    result.map_err(|refusal| match standing {
        Standing::Active => refusal,
        Standing::Ended => Refusal::Ended,
        Standing::Expired => Refusal::NoSession,
    })
}

impl Store {
    /// Asks for a turn, and says where calls go: in place of ROUTE for a server that is called one call at a time.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `ENDED`, `DENIED`; `LIMIT` where too many wait; `STALE` for a worker that counts as dead,
    /// and for a turn claimed again that is another's now; `ERR` for a lease out of its range.
    pub async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        on_backend!("SESSION.ENTER", self.enter(key, request))
    }

    /// Passes a turn on, or stops waiting for it.
    ///
    /// # Errors
    /// Refused: `STALE` for a ticket that has no turn, or has lost it, and where nobody waits; `BUSY` where one of those
    /// that might have waited has its turn; `DENIED`, and `NOSESSION` or `ENDED`, where there is nothing left to pass on.
    /// A module of before WAITING has nobody waiting.
    pub async fn leave(&self, key: &SessionKey, request: &LeaveRequest) -> Result<(), StoreError> {
        on_backend!("SESSION.LEAVE", self.leave(key, request))
    }
}
