//! Removes queues with their session, or when the node is promoted: the callers that wait in them are notified to ask
//! again.

use std::sync::Arc;

use super::Turns;
use super::request::TurnContext;
use crate::place::SessionPlace;
use crate::progress::StepProgress;
use crate::spots::SpotId;

impl Turns {
    pub(super) fn dissolve(&mut self, admits: impl Fn(&SessionPlace) -> bool) {
        for id in self.queues.of_sessions(admits) {
            self.dissolve_one(id);
        }
    }

    /// Removes a queue. If it has a holder that knows of its turn, a new queue replaces it, which is quiet until the
    /// holder's lease lapses.
    pub(super) fn restart_one(&mut self, id: SpotId) {
        let Some(spot) = self.queues.get(id) else {
            return;
        };
        let (session, server) = (Arc::clone(&spot.session), spot.server.clone());
        let quiet = spot.value.restarted();
        self.dissolve_one(id);
        if let Some(queue) = quiet {
            let due = self.quiet_until_of(&queue);
            let id = self.queues.insert(&session, &server, queue);
            self.queues.set_deadline(id, Some(due));
        }
    }

    /// Removes a queue at once; its waiters are notified in steps.
    pub(super) fn dissolve_one(&mut self, id: SpotId) {
        let offered = self.take_holder(id);
        let Some(mut queue) = self.queues.remove(id) else {
            return;
        };
        self.waiting = self.waiting.saturating_sub(queue.value.waiting());
        // The holder of a grant that was not picked up does not know of it, so it is still waiting.
        if let Some(holder) = offered.filter(|holder| holder.is_offered()) {
            queue.value.put_back(holder);
        }
        if queue.value.waiting() > 0 {
            self.dissolving.push_back(queue);
        }
    }

    pub(super) fn notify_dissolved(
        &mut self,
        context: &mut TurnContext<'_>,
        limit: usize,
    ) -> StepProgress {
        for _ in 0..limit {
            let Some(queue) = self.dissolving.front_mut() else {
                return StepProgress::Done;
            };
            match queue.value.next() {
                Some(waiter) => {
                    let events = &mut context.events;
                    events.post_settled(&waiter.worker, &queue.session, &queue.server);
                }
                None => drop(self.dissolving.pop_front()),
            }
        }
        StepProgress::More
    }
}
