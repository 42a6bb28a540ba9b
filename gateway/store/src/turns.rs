//! Turns: one call at a time to one server of one session, in the order of arrival.
//!
//! Redis keeps the order over the whole fleet. The other stores keep it among the callers of one process, which is all
//! of a fleet of one; several gateways over one embedded file keep it each for itself.

use std::time::{Duration, Instant};

#[cfg(any(test, feature = "test-support"))]
use futures_util::FutureExt as _;
use mooring_session::names::{Principal, ServerName, Token, WorkerId};
use mooring_session::record::SessionState;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{RouteReply, RouteRequest};
use mooring_session::time::Millis;
use mooring_session::turns;
pub use mooring_session::turns::{Line, TurnHolder};
use mooring_usage::for_same_user;
use tokio::runtime::Handle;

use super::error::StoreError;
use super::key::SessionKey;
use super::{AnsweredBy, Backend, Store, on_backend, record_duration};

/// Most attempts to end a turn that no caller waits for. If all fail, it expires with its lease.
const END_ATTEMPTS: u32 = 3;
/// Pause before another such attempt.
const END_PAUSE: Duration = Duration::from_millis(200);
/// The name of the command.
pub(super) const LEAVE: &str = "SESSION.LEAVE";

/// An ENTER: a ROUTE, and the turn of the session at that server.
#[derive(Clone, Debug)]
pub struct EnterRequest {
    /// The principal that must own the session.
    pub principal: Principal,
    /// Which server is to be called.
    pub server: ServerName,
    /// The worker of the call. [`wait_for_events`](Store::wait_for_events) reports the turn to it.
    pub worker: WorkerId,
    /// This call: random, chosen by the worker. The same ticket again renews the lease.
    pub ticket: Token,
    /// The lease of the turn, unless it is renewed. From 10 ms to the server's maximum, 2 s by default.
    pub lease: Millis,
    /// The queue to enter.
    pub line: Line,
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
    /// Who has the turn, where the caller waits and the store knows.
    pub holder: Option<TurnHolder>,
    /// The store that assigned the turn: memory orders only this worker's callers, not those of other workers.
    pub answered_by: AnsweredBy,
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
    /// All waiting tickets with this prefix, at any worker. [`wait_for_events`](Store::wait_for_events) reports it to
    /// their workers.
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

/// A turn is released whatever the session's state; if there was none, that state is the error.
pub(super) fn left(result: Result<(), Refusal>, state: SessionState) -> Result<(), Refusal> {
    result.map_err(|refusal| match state {
        SessionState::Active => refusal,
        SessionState::Ended => Refusal::Ended,
        SessionState::Expired => Refusal::NoSession,
    })
}

impl Store {
    /// Enters the queue for a turn and returns the route: replaces ROUTE for servers that are called serially.
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

    /// Releases a turn, or stops waiting for it.
    ///
    /// # Errors
    /// Refused: `STALE` if the ticket has no turn or has lost it, or if no such call waits; `BUSY` if a call to be
    /// withdrawn has its turn already; `DENIED`, `NOSESSION` or `ENDED` if there is nothing left to release. A module
    /// older than WAITING reports no waiting call.
    pub async fn leave(&self, key: &SessionKey, request: &LeaveRequest) -> Result<(), StoreError> {
        on_backend!(LEAVE, self.leave(key, request))
    }

    /// Ends the turn that an ENTER of this process was granted, or the wait for one, without waiting for the reply. Who has
    /// the ticket may end it: the principal is not checked by every store. Later commands of this thread on the session find
    /// it ended, unless the store was not there. What fails is tried again.
    pub fn end_turn(&self, key: &SessionKey, turn: LeaveRequest) {
        let started = Instant::now();
        if let Backend::Embedded(store, _) = &*self.backend
            && store.end_turn(key, &turn)
        {
            return record_duration(LEAVE, started);
        }
        let ending = TurnEnding {
            store: self.clone(),
            key: key.clone(),
            turn,
        };
        match &*self.backend {
            #[cfg(any(test, feature = "test-support"))]
            Backend::Memory(store, _) => {
                let left = store.leave(&ending.key, &ending.turn).now_or_never();
                ending.attempted(started, left);
            }
            Backend::Embedded(..) => ending.retry(Duration::ZERO),
            Backend::Redis(store, _) => store.leave_unawaited(ending, started),
            Backend::Fallback(store) => store.leave_unawaited(ending, started),
        }
    }
}

/// A turn that no caller waits to see ended.
#[derive(Debug)]
pub(super) struct TurnEnding {
    store: Store,
    pub(super) key: SessionKey,
    pub(super) turn: LeaveRequest,
}

impl TurnEnding {
    /// Evaluates the result of the first attempt, which began at `started`; `None` if there is none, because the
    /// connection was lost.
    pub(super) fn attempted(self, started: Instant, left: Option<Result<(), StoreError>>) {
        record_duration(LEAVE, started);
        match left {
            // A refusal means that there is nothing to end.
            Some(Ok(()) | Err(StoreError::Refused(_))) => {}
            Some(Err(_)) | None => self.retry(END_PAUSE),
        }
    }

    /// Tries again in a task, after a pause.
    pub(super) fn retry(self, mut pause: Duration) {
        let Self { store, key, turn } = self;
        // Without a runtime the process is stopping.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        runtime.spawn(for_same_user(async move {
            for _ in 0..END_ATTEMPTS {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                match store.leave(&key, &turn).await {
                    Ok(()) | Err(StoreError::Refused(_)) => return,
                    Err(error) => {
                        tracing::debug!(session = %key.digest(), %error, "failed to release a turn");
                        pause = END_PAUSE;
                    }
                }
            }
        }));
    }
}
