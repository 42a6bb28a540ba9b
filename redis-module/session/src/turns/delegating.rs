//! Delegation: the worker of a caller gives the turn to its next calls itself, without asking.
//!
//! A delegation is a turn whose ticket stands for the worker instead of one call. It is granted to a worker that asked
//! for a few turns [in a row](super::streaks), if nobody waits. The worker renews it like any turn. Invariants: recalls
//! make a hand-over fast, and the lease makes it safe, because a caller that waits gets the turn when the delegation was
//! left or its lease has lapsed, whether or not the recall arrived. In a quiet time nothing is delegated. A worker that
//! cannot be notified gets no delegation, and loses those that it has.
//!
//! Precedents: delegations of NFS version 4 (RFC 8881, section 10.4), which are recalled over a callback path and only
//! granted while that works; locks that clients of Chubby cache (Burrows, OSDI 2006, section 2.7).

use super::Turns;
use super::queue::HoldScope;
use super::request::{TurnContext, TurnRequest, TurnScope};
use crate::events::EventMailboxes;
use crate::limits::{DELEGATION_STREAK_MIN, TURN_QUEUES_MAX};
use crate::names::WorkerId;
use crate::place::SessionPlace;
use crate::progress::StepProgress;
use crate::spots::SpotId;

impl Turns {
    /// For which calls a turn is granted that nobody else has or waits for.
    pub(super) fn scope_now(
        &mut self,
        id: SpotId,
        request: &TurnRequest,
        context: &mut TurnContext<'_>,
    ) -> HoldScope {
        let mono = context.mono;
        let Some(queue) = self.queues.get(id) else {
            return HoldScope::Call;
        };
        let (session, server) = (&queue.session, &queue.server);
        // In a quiet time only a caller that had the turn gets here.
        if request.scope == TurnScope::Call || request.held.is_some() {
            self.streaks.interrupt(session, server, &request.worker);
            return HoldScope::Call;
        }
        let turns = (self.streaks).note(session, server, &request.worker, mono);
        let until = mono.plus(request.lease);
        // A delegation keeps its queue between calls, which may not take the room of others.
        let has_room = self.queues.len() <= TURN_QUEUES_MAX / 2;
        if turns < DELEGATION_STREAK_MIN
            || !has_room
            || !(context.events).watch_delegation(&request.worker, session, server, until)
        {
            return HoldScope::Call;
        }
        self.streaks.forget(session, server);
        self.figures.delegated = self.figures.delegated.saturating_add(1);
        HoldScope::Delegation { is_recalled: false }
    }

    /// Another caller waits: notifies the worker, once.
    pub(super) fn recall(&mut self, id: SpotId, events: &mut EventMailboxes) {
        let Some(queue) = self.queues.get_mut(id) else {
            return;
        };
        let (session, server) = (&queue.session, &queue.server);
        self.streaks.forget(session, server);
        let Some(holder) = &mut queue.value.holder else {
            return;
        };
        if holder.scope != (HoldScope::Delegation { is_recalled: false }) {
            return;
        }
        holder.scope = HoldScope::Delegation { is_recalled: true };
        events.post_settled(&holder.worker, session, server);
        self.figures.recalled = self.figures.recalled.saturating_add(1);
    }

    /// The session is to be ended if it is idle: notifies the workers that have its turns delegated, so that it soon is
    /// unless their calls run.
    pub fn recall_session(&mut self, session: &SessionPlace, events: &mut EventMailboxes) {
        for id in self.queues.of_session(session) {
            self.recall(id, events);
        }
    }

    /// The holder leaves: its worker need not be notified of changes.
    pub(super) fn forget_watch(&self, id: SpotId, context: &mut TurnContext<'_>) {
        if let Some(queue) = self.queues.get(id)
            && let Some(holder) = &queue.value.holder
            && holder.scope != HoldScope::Call
        {
            (context.events).unwatch(&holder.worker, &queue.session, &queue.server);
        }
    }

    /// The worker can no longer be notified: ends its delegations, except for those that it has turned into the turn of
    /// one call by asking again. At most `limit` of them.
    pub fn end_delegations(
        &mut self,
        worker: &WorkerId,
        context: &mut TurnContext<'_>,
        limit: usize,
    ) -> StepProgress {
        let Some(held) = self.held_by.get(worker) else {
            return StepProgress::Done;
        };
        let is_delegated = |id: &SpotId| {
            let queue = self.queues.get(*id);
            let holder = queue.and_then(|queue| queue.value.holder.as_ref());
            holder.is_some_and(|holder| holder.is_delegated())
        };
        let delegated = held.iter().copied().filter(is_delegated);
        let ended: Vec<SpotId> = delegated.take(limit).collect();
        let progress = match ended.len() < limit {
            true => StepProgress::Done,
            false => StepProgress::More,
        };
        for id in ended {
            self.figures.lost = self.figures.lost.saturating_add(1);
            self.pass_on(id, context);
        }
        progress
    }
}
