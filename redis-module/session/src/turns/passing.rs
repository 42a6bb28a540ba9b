//! How a turn is lost, granted and passed on.
//!
//! Invariant: `held_by` lists a queue under a worker exactly while that worker holds its turn.

use std::sync::Arc;

use super::Turns;
use super::queue::{HoldScope, HoldState, Holder};
use super::request::TurnContext;
use crate::clock::highest_number_followed;
use crate::events::MailboxEvent;
use crate::limits::TURN_PICKUP;
use crate::names::WorkerId;
use crate::progress::StepProgress;
use crate::rotation::next_in_rotation;
use crate::spots::SpotId;
use crate::time::Timestamp;

/// How many waiters of dead workers one step skips.
const DEAD_PASSED_MAX: usize = 1_024;

impl Turns {
    /// Takes the turn from a holder that lost it, and passes on a turn that has no holder.
    pub(super) fn settle(&mut self, id: SpotId, context: &mut TurnContext<'_>) {
        let Some(queue) = self.queues.get(id) else {
            return;
        };
        let Some(holder) = &queue.value.holder else {
            self.pass_on(id, context);
            return;
        };
        if context.mono < holder.until() && context.workers.is_alive(&holder.worker) {
            return;
        }
        self.figures.lost = self.figures.lost.saturating_add(1);
        if holder.is_offered() {
            let (worker, session) = (holder.worker.clone(), Arc::clone(&queue.session));
            context
                .events
                .post_settled(&worker, &session, &queue.server.clone());
        }
        self.pass_on(id, context);
    }

    /// Takes the turn from its holder and grants it to the next waiter whose worker is alive, unless the queue is
    /// quiet.
    pub(super) fn pass_on(&mut self, id: SpotId, context: &mut TurnContext<'_>) {
        self.take_holder(id);
        let Some(queue) = self.queues.get(id) else {
            return;
        };
        let quiet_until = self.quiet_until_of(&queue.value);
        if context.mono < quiet_until {
            self.queues.set_deadline(id, Some(quiet_until));
            return;
        }
        let number = self.next_number(context.now);
        let Some(queue) = self.queues.get_mut(id) else {
            return;
        };
        for _ in 0..DEAD_PASSED_MAX {
            let Some(waiter) = queue.value.next() else {
                self.queues.remove(id);
                return;
            };
            self.waiting = self.waiting.saturating_sub(1);
            if !context.workers.is_alive(&waiter.worker) {
                let events = &mut context.events;
                events.post_settled(&waiter.worker, &queue.session, &queue.server);
                continue;
            }
            let item = MailboxEvent::Turn {
                session: Arc::clone(&queue.session),
                server: queue.server.clone(),
                ticket: waiter.ticket.clone(),
                turn: number,
            };
            context.events.post_to_ticket(&waiter.worker, item);
            let until = context.mono.plus(TURN_PICKUP);
            let holder = Holder {
                worker: waiter.worker,
                ticket: waiter.ticket,
                number,
                lease: waiter.lease,
                since: context.mono,
                state: HoldState::Offered { until },
                scope: HoldScope::Call,
                ends: None,
            };
            self.grant(id, holder, context.now);
            return;
        }
        self.queues.set_deadline(id, Some(context.mono));
    }

    pub(super) fn grant(&mut self, id: SpotId, holder: Holder, now: Timestamp) {
        self.figures.granted = self.figures.granted.saturating_add(1);
        // The node assigns the next number itself. The number of a reclaimed turn is only a claim of the caller.
        let followed = highest_number_followed(now).max(self.next_number(now));
        if holder.number <= followed {
            self.highest = self.highest.max(holder.number);
        }
        self.list(&holder.worker, id);
        self.queues.set_deadline(id, Some(holder.until()));
        if let Some(queue) = self.queues.get_mut(id) {
            queue.value.highest = queue.value.highest.max(holder.number);
            queue.value.holder = Some(holder);
        }
    }

    /// Takes the turn from its holder.
    pub(super) fn take_holder(&mut self, id: SpotId) -> Option<Holder> {
        let holder = self.queues.get_mut(id)?.value.holder.take()?;
        self.unlist(&holder.worker, id);
        Some(holder)
    }

    pub(super) fn list(&mut self, worker: &WorkerId, id: SpotId) {
        self.held_by.entry(worker.clone()).or_default().insert(id);
    }

    pub(super) fn unlist(&mut self, worker: &WorkerId, id: SpotId) {
        if let Some(held) = self.held_by.get_mut(worker) {
            held.remove(&id);
            if held.is_empty() {
                self.held_by.remove(worker);
            }
        }
    }

    pub(super) fn next_number(&self, now: Timestamp) -> u64 {
        self.highest.saturating_add(1).max(now.least_number())
    }

    /// Passes on the turns of dead workers. Checks `limit` workers at a time, in rotation.
    pub(super) fn reclaim_from_dead_workers(
        &mut self,
        context: &mut TurnContext<'_>,
        limit: usize,
    ) -> StepProgress {
        let looked_at = next_in_rotation(&self.held_by, self.checked.as_ref(), limit);
        let mut left = limit;
        for worker in looked_at {
            if !context.workers.is_alive(&worker) {
                let held: Vec<SpotId> = self
                    .held_by
                    .get(&worker)
                    .map(|held| held.iter().take(left).copied().collect())
                    .unwrap_or_default();
                left = left.saturating_sub(held.len());
                for id in held {
                    self.settle(id, context);
                }
                if self.held_by.contains_key(&worker) {
                    return StepProgress::More;
                }
            }
            self.checked = Some(worker);
        }
        StepProgress::Done
    }
}
