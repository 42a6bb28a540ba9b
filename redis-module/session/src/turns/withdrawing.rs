//! Withdrawal: somebody else takes a call out of the queue that waits for its turn, or limits the turn of one that runs.
//!
//! A call may be named by more than one ticket, where a caller asks twice for it; so it is named by what they all begin
//! with. Invariant: whoever has heard of its turn keeps it for [`TURN_CANCELLED_GRACE`](crate::limits::TURN_CANCELLED_GRACE)
//! at most, however often it renews.

use std::sync::Arc;

use super::Turns;
use super::request::TurnContext;
use crate::names::ServerName;
use crate::news::NewsItem;
use crate::place::SessionPlace;
use crate::refusal::{Busy, Refusal, Stale};

impl Turns {
    /// Takes everybody out of the queue whose ticket begins so, also one whose turn has come and who has not heard of
    /// it, and tells their workers. Answers how many they were.
    ///
    /// # Errors
    /// `BUSY` where one of them has the turn and knows of it, and then none is taken out: the turn passes on after the grace.
    /// `STALE` where there is none.
    pub fn withdraw(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        beginning: &str,
        context: &mut TurnContext<'_>,
    ) -> Result<usize, Refusal> {
        let stale = Refusal::Stale(Stale::Turn);
        let id = self.queues.find(session, server).ok_or(stale.clone())?;
        self.settle(id, context);
        let queue = self.queues.get_mut(id).ok_or(stale.clone())?;
        let holder = queue.value.holder.as_mut();
        let mut holder = holder.filter(|holder| holder.ticket.as_str().starts_with(beginning));
        if let Some(holder) = &mut holder
            && !holder.is_offered()
        {
            holder.cancel(context.mono);
            let until = holder.until();
            self.queues.set_deadline(id, Some(until));
            return Err(Refusal::Busy(Busy::Turn));
        }
        let offered = holder.map(|holder| (holder.worker.clone(), holder.ticket.clone()));
        let has_offer = offered.is_some();
        let waiters = queue.value.take_named(beginning);
        self.waiting = self.waiting.saturating_sub(waiters.len());
        let waiters = waiters
            .into_iter()
            .map(|waiter| (waiter.worker, waiter.ticket));
        let mut count = 0;
        for (worker, ticket) in offered.into_iter().chain(waiters) {
            let item = NewsItem::Withdrawn {
                session: Arc::clone(&queue.session),
                server: queue.server.clone(),
                ticket,
            };
            context.news.post_to_ticket(&worker, item);
            count += 1;
        }
        if has_offer {
            self.pass_on(id, context);
        } else {
            self.close_if_empty(id, context.mono);
        }
        if count == 0 {
            return Err(stale);
        }
        Ok(count)
    }
}
