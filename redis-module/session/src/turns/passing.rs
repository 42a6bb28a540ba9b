//! How a turn is lost, given and handed on.
//!
//! Invariant: `held_by` names a queue under a worker exactly while that worker holds its turn.

use std::sync::Arc;

use super::Turns;
use super::queue::{HoldState, Holder};
use super::request::TurnContext;
use crate::clock::highest_number_followed;
use crate::limits::TURN_PICKUP;
use crate::names::WorkerId;
use crate::news::NewsItem;
use crate::progress::StepProgress;
use crate::rotation::next_in_rotation;
use crate::spots::SpotId;
use crate::time::Timestamp;

/// How many dead waiters one step passes over.
const DEAD_PASSED_MAX: usize = 1_024;

impl Turns {
    /// Takes the turn from a holder that lost it, and lets a queue go on that may.
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
                .news
                .post_settled(&worker, &session, &queue.server.clone());
        }
        self.pass_on(id, context);
    }

    /// Nobody holds the turn any more: the next living waiter does, unless the quiet time still runs.
    pub(super) fn pass_on(&mut self, id: SpotId, context: &mut TurnContext<'_>) {
        self.let_go(id);
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
                let news = &mut context.news;
                news.post_settled(&waiter.worker, &queue.session, &queue.server);
                continue;
            }
            let item = NewsItem::Turn {
                session: Arc::clone(&queue.session),
                server: queue.server.clone(),
                ticket: waiter.ticket.clone(),
                turn: number,
            };
            context.news.post_to_ticket(&waiter.worker, item);
            let until = context.mono.plus(TURN_PICKUP);
            let holder = Holder {
                worker: waiter.worker,
                ticket: waiter.ticket,
                number,
                lease: waiter.lease,
                since: context.mono,
                state: HoldState::Offered { until },
                ends: None,
            };
            self.grant(id, holder, context.now);
            return;
        }
        self.queues.set_deadline(id, Some(context.mono));
    }

    pub(super) fn grant(&mut self, id: SpotId, holder: Holder, now: Timestamp) {
        self.figures.granted = self.figures.granted.saturating_add(1);
        // The node's own number is the next one. One that is claimed again is the caller's word.
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

    /// Takes the turn from whoever has it.
    pub(super) fn let_go(&mut self, id: SpotId) -> Option<Holder> {
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

    /// Looks after the workers that hold turns, `limit` at a time and one after another.
    pub(super) fn take_from_the_dead(
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
