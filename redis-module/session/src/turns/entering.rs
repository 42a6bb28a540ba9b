//! The steps of ENTER: renewing the lease, granting the turn at once, and waiting.

use super::Turns;
use super::queue::{HoldScope, HoldState, Holder, Queue};
use super::request::{TurnContext, TurnRequest, TurnStatus};
use crate::clock::highest_number_followed;
use crate::limits::{LEASE_MIN, TURN_QUEUES_MAX, TURN_WAITERS_MAX};
use crate::names::{NameError, Problem, ServerName};
use crate::place::SessionPlace;
use crate::refusal::{Refusal, Stale};
use crate::spots::SpotId;
use crate::time::{Millis, Monotonic};

/// How often a full queue is searched for waiters of dead workers, at most.
const SWEEP_EVERY: Millis = Millis::new(1_000);

impl Turns {
    /// Renews the lease if the caller is the holder.
    pub(super) fn renew(
        &mut self,
        id: SpotId,
        request: &TurnRequest,
        context: &mut TurnContext<'_>,
    ) -> Option<TurnStatus> {
        let mono = context.mono;
        let queue = self.queues.get_mut(id)?;
        let has_waiters = queue.value.waiting() > 0;
        let holder = queue.value.holder.as_mut()?;
        if holder.ticket != request.ticket {
            return None;
        }
        holder.lease = request.lease;
        holder.hold(mono);
        holder.ask_again(request.scope, has_waiters);
        let (until, number) = (holder.until(), holder.number);
        if holder.is_delegated() {
            let events = &mut context.events;
            let is_watched =
                events.watch_delegation(&request.worker, &queue.session, &queue.server, until);
            if !is_watched {
                holder.scope = HoldScope::FormerDelegation;
            }
        }
        let is_delegated = holder.is_delegated();
        if holder.worker != request.worker {
            let before = std::mem::replace(&mut holder.worker, request.worker.clone());
            self.unlist(&before, id);
            self.list(&request.worker.clone(), id);
        }
        self.queues.set_deadline(id, Some(until));
        Some(match is_delegated {
            true => TurnStatus::Delegated(number),
            false => TurnStatus::Granted(number),
        })
    }

    /// Checks a turn that is reclaimed: its number must be one that a clock can have assigned, and no later turn may
    /// have been granted. Otherwise the next turn could have a lower number.
    pub(super) fn check_held(
        &self,
        known: Option<SpotId>,
        number: u64,
        context: &TurnContext<'_>,
    ) -> Result<(), Refusal> {
        let mono = context.mono;
        if number > highest_number_followed(context.now).max(self.highest) {
            return Err(Refusal::Stale(Stale::Turn));
        }
        let Some(queue) = known.and_then(|id| self.queues.get(id)) else {
            return Ok(());
        };
        let queue = &queue.value;
        let is_taken = queue.holder.is_some() && mono >= self.quiet_until_of(queue);
        if is_taken || queue.highest >= number {
            return Err(Refusal::Stale(Stale::Turn));
        }
        Ok(())
    }

    /// The number of the turn if the caller gets it at once.
    pub(super) fn number_now(
        &mut self,
        id: SpotId,
        request: &TurnRequest,
        context: &TurnContext<'_>,
    ) -> Option<u64> {
        let queue = &self.queues.get(id)?.value;
        if context.mono < self.quiet_until_of(queue) {
            return request.held;
        }
        if queue.holder.is_some() || queue.waiting() > 0 {
            return None;
        }
        Some(self.next_number(context.now))
    }

    pub(super) fn take_over(
        &mut self,
        id: SpotId,
        request: &TurnRequest,
        number: u64,
        context: &mut TurnContext<'_>,
    ) -> TurnStatus {
        if self.take_holder(id).is_some() {
            self.figures.lost = self.figures.lost.saturating_add(1);
        }
        if let Some(queue) = self.queues.get_mut(id) {
            // The holder that the queue was quiet for has returned.
            queue.value.quiet_until = Monotonic::default();
            let withdrawn = queue.value.withdraw(&request.ticket);
            self.waiting = self.waiting.saturating_sub(usize::from(withdrawn));
        }
        let scope = self.scope_now(id, request, context);
        let until = context.mono.plus(request.lease);
        let holder = Holder {
            worker: request.worker.clone(),
            ticket: request.ticket.clone(),
            number,
            lease: request.lease,
            since: context.mono,
            state: HoldState::Held { until },
            scope,
            ends: None,
        };
        self.grant(id, holder, context.now);
        match scope {
            HoldScope::Delegation { .. } => TurnStatus::Delegated(number),
            HoldScope::Call | HoldScope::FormerDelegation => TurnStatus::Granted(number),
        }
    }

    pub(super) fn wait(
        &mut self,
        id: SpotId,
        request: &TurnRequest,
        context: &mut TurnContext<'_>,
    ) -> Result<(), Refusal> {
        let Some(queue) = self.queues.get_mut(id) else {
            return Ok(());
        };
        if queue.value.awaits(&request.ticket) {
            queue.value.ask_again(request);
            return Ok(());
        }
        let room = self.make_room(id, context);
        let Some(queue) = self.queues.get_mut(id).filter(|_| room.is_ok()) else {
            self.close_if_empty(id, context.mono);
            return room;
        };
        queue.value.join(request, context.mono);
        let has_holder = queue.value.holder.is_some();
        self.recall(id, context.events);
        self.waiting = self.waiting.saturating_add(1);
        self.figures.waited = self.figures.waited.saturating_add(1);
        if !has_holder && let Some(queue) = self.queues.get(id) {
            let due = self.quiet_until_of(&queue.value);
            self.queues.set_deadline(id, Some(due.max(context.mono)));
        }
        Ok(())
    }

    fn make_room(&mut self, id: SpotId, context: &mut TurnContext<'_>) -> Result<(), Refusal> {
        if self.waiting >= TURN_WAITERS_MAX {
            return Err(limit("turn-waiters", TURN_WAITERS_MAX));
        }
        let queue_max = context.limits.queue_max;
        let Some(queue) = self.queues.get_mut(id) else {
            return Ok(());
        };
        if queue.value.waiting() < queue_max {
            return Ok(());
        }
        // Waiters of dead workers make room, but a full queue is not searched for every new caller.
        let swept_at = queue.value.swept_at;
        if swept_at.is_none_or(|at| at.plus(SWEEP_EVERY) <= context.mono) {
            queue.value.swept_at = Some(context.mono);
            let dead = queue
                .value
                .take_dead(|worker| context.workers.is_alive(worker));
            self.waiting = self.waiting.saturating_sub(dead.len());
            for waiter in dead {
                let events = &mut context.events;
                events.post_settled(&waiter.worker, &queue.session, &queue.server);
            }
        }
        if queue.value.waiting() < queue_max {
            return Ok(());
        }
        Err(limit("turn-queue", queue_max))
    }

    pub(super) fn open(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        context: &TurnContext<'_>,
    ) -> Result<SpotId, Refusal> {
        if self.queues.len() >= TURN_QUEUES_MAX {
            return Err(limit("turn-queues", TURN_QUEUES_MAX));
        }
        let mut queue = Queue::opened(self.created.contains(session));
        if !queue.is_of_new_session {
            let (mono, quiet) = (context.mono, context.limits.lease_max);
            queue.quiet_until = self.arrivals.quiet_until(session, mono, quiet);
        }
        Ok(self.queues.insert(session, server, queue))
    }

    /// Until when a queue is quiet: see the documentation of the module.
    pub(super) fn quiet_until_of(&self, queue: &Queue) -> Monotonic {
        match queue.is_of_new_session {
            true => queue.quiet_until,
            false => self.quiet_until.max(queue.quiet_until),
        }
    }

    /// Removes an idle queue. It is kept during its own quiet time, and during that of the node if it remembers the
    /// last granted number.
    pub(super) fn close_if_empty(&mut self, id: SpotId, mono: Monotonic) {
        let Some(queue) = self.queues.get(id) else {
            return;
        };
        let is_idle = queue.value.holder.is_none() && queue.value.waiting() == 0;
        let remembers =
            mono < queue.value.quiet_until || mono < self.quiet_until && queue.value.highest > 0;
        if is_idle && !remembers {
            self.queues.remove(id);
        }
    }
}

pub(super) fn check_lease(lease: Millis, most: Millis) -> Result<(), Refusal> {
    if (LEASE_MIN..=most).contains(&lease) {
        return Ok(());
    }
    Err(Refusal::Argument(NameError {
        what: "LEASE",
        problem: Problem::Range(LEASE_MIN.get(), most.get()),
    }))
}

const fn limit(what: &'static str, value: usize) -> Refusal {
    Refusal::Limit { what, value }
}
