//! A ticket's entry in the queue, from the first ENTER until it is released.
//!
//! Invariant: an entry that was requested is released, even if no caller waits for it any more: dropping it releases it
//! in the background.

use std::sync::Arc;
use std::time::Duration;

use mooring_delivery::Term;
use mooring_session::Refusal;
use mooring_session::names::{NameError, Principal, Token, WorkerId};
use mooring_session::refusal::Stale;
use mooring_session::time::Millis;
use tokio::time::{Instant, timeout_at};

use super::ticket_names;
use crate::affinity::beats::AcknowledgedBeats;
use crate::affinity::boot_clock::boot_now;
use crate::affinity::wake_ups::Waiters;
use mooring_store::{
    AnsweredBy, EnterReply, EnterRequest, HistoryEvent, LeaveRequest, LeaveTarget, Line,
    SessionKey, Store, StoreError, TurnError, TurnHolder, TurnScope, word,
};

/// How long a turn outlives its holder. Shorter than the store's longest lease (2 s by default), during which a
/// restarted Redis grants no turns. A holder whose gateway sends no heartbeats loses it earlier.
pub(super) const LEASE: Duration = Duration::from_millis(1_800);
/// How long a waiting call relies on wake-ups. A grant passes to the next ticket after a second without an ENTER, so a
/// lost event costs no turn.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// A wait is noted in the history of its session from this length on.
const WAIT_NOTED_AFTER: Duration = Duration::from_secs(1);
/// How often in a row this gateway may count as dead before the call fails.
const REFUSED_AS_DEAD_MAX: u32 = 10;

/// A session's queue at a server, as seen by one gateway.
#[derive(Clone, Debug)]
pub(super) struct TurnQueue {
    pub(super) store: Store,
    pub(super) waiters: Waiters,
    pub(super) beats: Arc<AcknowledgedBeats>,
    pub(super) key: SessionKey,
    /// How long a call keeps the turn while its server is silent; `None` for as long as it runs.
    pub(super) patience: Option<Duration>,
}

/// One ticket's entry in a queue.
#[derive(Debug)]
pub(in crate::affinity) struct QueueEntry {
    queue: TurnQueue,
    request: EnterRequest,
    /// A ticket of the call that has the turn now, where that of the request has the name of an earlier one.
    call_ticket: Option<Token>,
    /// For how long the turn that the store granted or renewed last may be relied on.
    term: Term,
    /// Whether the ticket may be in the queue.
    is_taken: bool,
}

impl QueueEntry {
    /// An entry that is not requested yet.
    pub(super) fn new(queue: TurnQueue, request: EnterRequest) -> Self {
        Self {
            queue,
            request,
            call_ticket: None,
            term: Term::default(),
            is_taken: false,
        }
    }

    /// An entry for a call that released its turn, ahead of all others. It has a new ticket, so that pending commands
    /// for the former one cannot affect it.
    ///
    /// # Errors
    /// Never in practice.
    pub(super) fn resumed(&self) -> Result<Self, NameError> {
        let before = self.call_ticket.as_ref().unwrap_or(&self.request.ticket);
        let request = EnterRequest {
            ticket: ticket_names::resumed(before)?,
            line: Line::First,
            scope: TurnScope::Call,
            held: None,
            ..self.request.clone()
        };
        Ok(Self::new(self.queue.clone(), request))
    }

    /// How long a call keeps the turn while its server is silent.
    pub(super) const fn patience(&self) -> Option<Duration> {
        self.queue.patience
    }

    #[cfg(test)]
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.queue.patience = Some(patience);
    }

    pub(super) fn log_silence(&self) {
        tracing::info!(session = %self.queue.key.digest(), server = %self.request.server, patience = ?self.queue.patience, "turn released: the server of the call has been silent");
    }

    /// The principal of its call.
    pub(in crate::affinity) const fn principal(&self) -> &Principal {
        &self.request.principal
    }

    /// The worker of its call.
    pub(in crate::affinity) const fn worker(&self) -> &WorkerId {
        &self.request.worker
    }

    /// For how long the turn that the store granted or renewed last may be relied on.
    pub(in crate::affinity) const fn term(&self) -> Term {
        self.term
    }

    /// From now on also asks for a delegation, with this lease.
    pub(super) fn ask_for_delegation(&mut self, lease: Millis) {
        self.request.scope = TurnScope::Delegation;
        self.request.lease = lease;
    }

    /// From now on asks for a turn for one call: that of the ticket, or this one if the turn was delegated.
    pub(in crate::affinity) fn ask_for_call(&mut self, call_ticket: Option<Token>) {
        self.request.scope = TurnScope::Call;
        self.request.lease = Millis::from(LEASE);
        self.call_ticket = call_ticket;
    }

    /// The store of the queue.
    pub(super) const fn store(&self) -> &Store {
        &self.queue.store
    }

    /// Waits until the turn is granted; without `gives_up_at`, for any time.
    pub(super) async fn wait(
        &mut self,
        gives_up_at: Option<Instant>,
    ) -> Result<EnterReply, TurnError> {
        // Joined before the first query, so that no event is missed.
        let waiters = self.queue.waiters.clone();
        let mut turn_waiter = waiters.join_turn(&self.request.ticket);
        // Joined only by a call that has to wait, which most do not.
        let mut outcome_waiter = None;
        let mut is_in_line = false;
        let mut worker_lost = None;
        let mut holder = None;
        let mut refused_as_dead = 0_u32;
        let began = Instant::now();
        loop {
            let outcomes = waiters.outcomes();
            let answer = self.ask(None).await;
            // The query may have put it back in line; dropping the entry removes it.
            if turn_waiter.is_withdrawn() {
                self.note_wait(began, holder.as_ref(), "was withdrawn");
                return Err(TurnError::Withdrawn);
            }
            match answer {
                Ok(mut entered) => {
                    // The store reports it once, to the first query.
                    worker_lost = worker_lost.or(entered.routed.worker_lost.take());
                    if entered.turn.is_some() {
                        entered.routed.worker_lost = worker_lost;
                        self.note_wait(began, holder.as_ref(), "got it");
                        return Ok(entered);
                    }
                    is_in_line = true;
                    holder = entered.holder;
                }
                Err(StoreError::Refused(Refusal::Limit { .. })) => {
                    self.note_too_many();
                    return Err(TurnError::TooMany);
                }
                // The entry survives a short outage of the store.
                Err(StoreError::Away(_) | StoreError::NotReady(_)) if is_in_line => {}
                // This gateway was too busy to send heartbeats in time, and will send one soon.
                Err(StoreError::Refused(Refusal::Stale(Stale::Worker)))
                    if refused_as_dead < REFUSED_AS_DEAD_MAX =>
                {
                    refused_as_dead = refused_as_dead.saturating_add(1);
                }
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            if gives_up_at.is_some_and(|at| at <= now) {
                self.note_wait(began, holder.as_ref(), "gave up");
                return Err(TurnError::Busy { holder });
            }
            let outcome_waiter = match &mut outcome_waiter {
                Some(waiter) => waiter,
                None => {
                    let joined = waiters.join(&self.queue.key, &self.request.server);
                    let waiter = outcome_waiter.insert(joined);
                    if waiters.outcomes() != outcomes {
                        continue;
                    }
                    waiter
                }
            };
            let asks_again_at = now + ASK_AGAIN_AFTER;
            let asks_again_at = gives_up_at.map_or(asks_again_at, |at| at.min(asks_again_at));
            let woken = async {
                tokio::select! {
                    () = turn_waiter.woken(ASK_AGAIN_AFTER) => {}
                    () = outcome_waiter.woken(ASK_AGAIN_AFTER) => {}
                }
            };
            // In either case ask the store again, unless the call was withdrawn.
            let _ = timeout_at(asks_again_at, woken).await;
            if turn_waiter.is_withdrawn() {
                self.note_wait(began, holder.as_ref(), "was withdrawn");
                return Err(TurnError::Withdrawn);
            }
        }
    }

    /// Requests the turn, or renews it; `held` is its number if it is granted.
    pub(in crate::affinity) async fn ask(
        &mut self,
        held: Option<u64>,
    ) -> Result<EnterReply, StoreError> {
        self.is_taken = true;
        self.request.held = held;
        let TurnQueue {
            store, key, beats, ..
        } = &self.queue;
        let lease = Duration::from_millis(self.request.lease.get());
        let (term, bound) = (Term::asked(boot_now(), lease), beats.bound());
        let answer = store.enter(key, &self.request).await;
        if let Ok(entered) = &answer {
            self.term = match entered.answered_by {
                AnsweredBy::Store => bound.apply(term),
                // Of this process alone, which is alive.
                AnsweredBy::Memory => term,
            };
        }
        if let Err(StoreError::Refused(refusal)) = &answer {
            // A refused ticket is not in the queue, except one that was in it before its worker counted as dead.
            self.is_taken = *refusal == Refusal::Stale(Stale::Worker);
        }
        answer
    }

    /// Notes a long wait in the history of the session.
    fn note_wait(&self, began: Instant, holder: Option<&TurnHolder>, outcome: &'static str) {
        let waited = began.elapsed();
        if waited < WAIT_NOTED_AFTER {
            return;
        }
        let waited = HistoryEvent::Waited {
            server: word(self.request.server.as_str()),
            wait_ms: Millis::from(waited).get(),
            holder: holder.map(|holder| word(holder.worker.as_str())),
            outcome: outcome.into(),
        };
        self.store().note(&self.queue.key.digest(), waited);
    }

    /// Notes in the history of the session that too many calls wait.
    fn note_too_many(&self) {
        let refused = HistoryEvent::Refused {
            server: word(self.request.server.as_str()),
            limit: "too many calls wait for a turn".into(),
        };
        self.store().note(&self.queue.key.digest(), refused);
    }

    fn leave_request(&self) -> LeaveRequest {
        LeaveRequest {
            principal: self.request.principal.clone(),
            server: self.request.server.clone(),
            who: LeaveTarget::Ticket(self.request.ticket.clone()),
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        if self.is_taken {
            self.store().end_turn(&self.queue.key, self.leave_request());
        }
    }
}
