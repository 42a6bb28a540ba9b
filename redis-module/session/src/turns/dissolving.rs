//! Queues that go with their session, or with all the node knew: whoever waits in them is told to ask again.

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

    /// The same, and another queue takes its place where a holder believes in its turn: it is quiet until the lease of that
    /// lapses.
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

    /// The queue is gone at once; those who wait are told step by step.
    pub(super) fn dissolve_one(&mut self, id: SpotId) {
        let offered = self.let_go(id);
        let Some(mut queue) = self.queues.remove(id) else {
            return;
        };
        self.waiting = self.waiting.saturating_sub(queue.value.waiting());
        // Nobody has told the holder of a grant that was not picked up, so it still waits.
        if let Some(holder) = offered.filter(|holder| holder.is_offered()) {
            queue.value.put_back(holder);
        }
        if queue.value.waiting() > 0 {
            self.dissolving.push_back(queue);
        }
    }

    pub(super) fn tell_of_the_dissolved(
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
                    let news = &mut context.news;
                    news.post_settled(&waiter.worker, &queue.session, &queue.server);
                }
                None => drop(self.dissolving.pop_front()),
            }
        }
        StepProgress::More
    }
}
