//! Entering and leaving the queues for turns.

use std::time::{Duration, Instant};

use mooring_session::rules::RouteRequest;
use mooring_session::time::Millis;
use mooring_usage::for_same_user;
use tokio::runtime::Handle;

use super::{Backend, Store, on_backend, record_duration};
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::turns::{DelegatedRoute, EnterReply, EnterRequest, LEAVE, LeaveRequest, TurnEnding};

/// Most attempts to end a turn that no caller waits for. If all fail, it expires with its lease.
const END_ATTEMPTS: u32 = 3;
/// Pause before another such attempt.
const END_PAUSE: Duration = Duration::from_millis(200);

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

    /// The same as ROUTE, and asks to use the route for this long without asking. That is a wish, which the reply may not
    /// grant.
    ///
    /// # Errors
    /// Those of [`route`](Self::route).
    pub async fn delegate_route(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
        lease: Millis,
    ) -> Result<DelegatedRoute, StoreError> {
        on_backend!("SESSION.ROUTE", self.delegate_route(key, request, lease))
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
        if let Backend::Embedded(store) = &*self.backend
            && store.end_turn(key, &turn)
        {
            return record_duration(LEAVE, started);
        }
        let ending = UnawaitedLeave {
            store: self.clone(),
            key: key.clone(),
            turn,
        };
        match &*self.backend {
            Backend::Embedded(..) => ending.retry(Duration::ZERO),
            Backend::Redis(store, _) => store.leave_unawaited(ending, started),
            Backend::Fallback(store) => store.leave_unawaited(ending, started),
        }
    }
}

/// A turn of this store that no caller waits to see ended.
#[derive(Debug)]
struct UnawaitedLeave {
    store: Store,
    key: SessionKey,
    turn: LeaveRequest,
}

impl TurnEnding for UnawaitedLeave {
    fn key(&self) -> &SessionKey {
        &self.key
    }

    fn turn(&self) -> &LeaveRequest {
        &self.turn
    }

    fn attempted(self, started: Instant, left: Option<Result<(), StoreError>>) {
        record_duration(LEAVE, started);
        match left {
            // A refusal means that there is nothing to end.
            Some(Ok(()) | Err(StoreError::Refused(_))) => {}
            Some(Err(_)) | None => self.retry(END_PAUSE),
        }
    }

    fn retry(self, mut pause: Duration) {
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
