//! One ticket's place in the queue, from the first question to the moment in which it is given back.
//!
//! Invariant: what was asked for is given back, also where nobody waits for the answer any more: a place that is dropped
//! sees to that by itself.

use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::NameError;
use mooring_session::refusal::Stale;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use super::{TurnError, ticket_names};
use crate::affinity::wake_ups::Waiters;
use mooring_store::{
    EnterReply, EnterRequest, LeaveRequest, LeaveTarget, Line, SessionKey, Store, StoreError,
};

/// How long a turn outlives its holder. Shorter than the store's longest lease, 2 s unless its settings say otherwise: a
/// Redis that has restarted grants no turn for as long as that. A holder whose worker does not beat loses it before.
pub(super) const LEASE: Duration = Duration::from_millis(1_800);
/// How long a waiting call relies on wake-ups. A grant passes on after a second without a word of its ticket, so news that was
/// lost costs no turn.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How often in a row a worker that asks may count as dead before its call is refused.
const REFUSED_AS_DEAD_MAX: u32 = 10;
/// Attempts to give a ticket back, and the pause between two. What stays in the queue after that lapses with its lease.
const LEAVE_ATTEMPTS: u32 = 3;
/// See [`LEAVE_ATTEMPTS`].
const LEAVE_PAUSE: Duration = Duration::from_millis(200);

/// A session's queue at a server, as one worker sees it.
#[derive(Clone, Debug)]
pub(super) struct TurnQueue {
    pub(super) store: Store,
    pub(super) waiters: Waiters,
    pub(super) key: SessionKey,
}

/// One ticket's place in a queue.
#[derive(Debug)]
pub(super) struct QueueEntry {
    queue: TurnQueue,
    request: EnterRequest,
    /// Whether the ticket may stand in the queue.
    is_taken: bool,
}

impl QueueEntry {
    /// A place that is not taken yet.
    pub(super) const fn new(queue: TurnQueue, request: EnterRequest) -> Self {
        Self {
            queue,
            request,
            is_taken: false,
        }
    }

    /// A place for a call that passed its turn on: under a ticket of its own, so that what is still under way for the
    /// one before cannot harm it, and before all others.
    ///
    /// # Errors
    /// Never in practice.
    pub(super) fn again(&self) -> Result<Self, NameError> {
        let request = EnterRequest {
            ticket: ticket_names::resumed(&self.request.ticket)?,
            line: Line::First,
            ..self.request.clone()
        };
        Ok(Self::new(self.queue.clone(), request))
    }

    /// Where turns are asked for.
    pub(super) const fn store(&self) -> &Store {
        &self.queue.store
    }

    /// Waits until the turn comes; for ever, where there is no moment at which it gives up.
    pub(super) async fn wait(
        &mut self,
        gives_up_at: Option<Instant>,
    ) -> Result<EnterReply, TurnError> {
        // Joined before the first question, so that no event is missed.
        let waiters = self.queue.waiters.clone();
        let mut told = waiters.join_turn(&self.request.ticket);
        let mut settled = waiters.join(&self.queue.key, &self.request.server);
        let mut is_in_line = false;
        let mut worker_lost = None;
        let mut refused_as_dead = 0_u32;
        loop {
            let answer = self.ask(None).await;
            // Asking may have put it back in line: whoever drops the place takes it out.
            if told.is_withdrawn() {
                return Err(TurnError::Withdrawn);
            }
            match answer {
                Ok(mut entered) => {
                    // Said once, to whoever asks first.
                    worker_lost = worker_lost.or(entered.routed.worker_lost.take());
                    if entered.turn.is_some() {
                        entered.routed.worker_lost = worker_lost;
                        return Ok(entered);
                    }
                    is_in_line = true;
                }
                Err(StoreError::Refused(Refusal::Limit { .. })) => return Err(TurnError::TooMany),
                // The place in the queue outlasts a moment in which the store cannot be asked.
                Err(StoreError::Away(_) | StoreError::NotReady(_)) if is_in_line => {}
                // This worker was too busy to beat in time, and beats again at the next opportunity.
                Err(StoreError::Refused(Refusal::Stale(Stale::Worker)))
                    if refused_as_dead < REFUSED_AS_DEAD_MAX =>
                {
                    refused_as_dead = refused_as_dead.saturating_add(1);
                }
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            if gives_up_at.is_some_and(|at| at <= now) {
                return Err(TurnError::Busy);
            }
            let asks_again_at = now + ASK_AGAIN_AFTER;
            let asks_again_at = gives_up_at.map_or(asks_again_at, |at| at.min(asks_again_at));
            let woken = async {
                tokio::select! {
                    () = told.woken(ASK_AGAIN_AFTER) => {}
                    () = settled.woken(ASK_AGAIN_AFTER) => {}
                }
            };
            // Either way the store is asked, unless the call is wanted no more.
            let _ = timeout_at(asks_again_at, woken).await;
            if told.is_withdrawn() {
                return Err(TurnError::Withdrawn);
            }
        }
    }

    /// Asks for the turn, or renews it; `held` is its number where it is had.
    pub(super) async fn ask(&mut self, held: Option<u64>) -> Result<EnterReply, StoreError> {
        self.is_taken = true;
        let request = EnterRequest {
            held,
            ..self.request.clone()
        };
        let answer = self.queue.store.enter(&self.queue.key, &request).await;
        if let Err(StoreError::Refused(_)) = &answer {
            // Nothing was changed; and who holds a turn, or waits for one, is refused for having lost it.
            self.is_taken = false;
        }
        answer
    }

    /// Gives the ticket back.
    pub(super) async fn leave(&mut self) {
        if self.is_taken {
            self.leaving().await;
            self.is_taken = false;
        }
    }

    /// A refusal says that there is nothing to give back any more.
    fn leaving(&self) -> impl Future<Output = ()> + Send + use<> {
        let TurnQueue { store, key, .. } = self.queue.clone();
        let request = LeaveRequest {
            principal: self.request.principal.clone(),
            server: self.request.server.clone(),
            who: LeaveTarget::Ticket(self.request.ticket.clone()),
        };
        async move {
            for _ in 0..LEAVE_ATTEMPTS {
                match store.leave(&key, &request).await {
                    Ok(()) | Err(StoreError::Refused(_)) => return,
                    Err(error) => {
                        tracing::debug!(session = %key.digest(), %error, "a turn could not be given back");
                        sleep(LEAVE_PAUSE).await;
                    }
                }
            }
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        if !self.is_taken {
            return;
        }
        // Without a runtime the process stops, and the ticket lapses with its lease.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.leaving());
        }
    }
}
