//! Withdrawal: another worker removes a waiting call from the queue, or limits the turn of a running one.
//!
//! A call may have several tickets, if its caller asks more than once; so the request names their common prefix. Which
//! call runs under a delegation is known to the worker only, so it is told of every request that names no waiter.
//! Invariant: a holder that knows of its turn keeps it for at most
//! [`TURN_CANCELLED_GRACE`](crate::limits::TURN_CANCELLED_GRACE), even if it renews its lease.

use std::sync::Arc;

use super::Turns;
use super::queue::{HoldScope, Holder};
use super::request::TurnContext;
use crate::events::MailboxEvent;
use crate::names::{ServerName, Token};
use crate::place::SessionPlace;
use crate::refusal::{Busy, Refusal, Stale};

impl Turns {
    /// Removes all callers whose ticket has this prefix from the queue, including one that was granted the turn and
    /// does not know of it yet, and notifies their workers. Returns their number.
    ///
    /// # Errors
    /// `BUSY` if one of them has the turn and knows of it; then none is removed, and the turn passes on after the grace
    /// period. `STALE` if there is no such caller.
    pub fn withdraw(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        ticket_prefix: &str,
        context: &mut TurnContext<'_>,
    ) -> Result<usize, Refusal> {
        let stale = Refusal::Stale(Stale::Turn);
        let id = self.queues.find(session, server).ok_or(stale.clone())?;
        self.settle(id, context);
        let queue = self.queues.get_mut(id).ok_or(stale.clone())?;
        let holder = queue.value.holder.as_mut();
        let is_named = |holder: &&mut Holder| {
            holder.scope == HoldScope::Call && holder.ticket.as_str().starts_with(ticket_prefix)
        };
        let mut holder = holder.filter(is_named);
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
        let waiters = queue.value.take_with_prefix(ticket_prefix);
        self.waiting = self.waiting.saturating_sub(waiters.len());
        let waiters = waiters
            .into_iter()
            .map(|waiter| (waiter.worker, waiter.ticket));
        let mut count = 0;
        for (worker, ticket) in offered.into_iter().chain(waiters) {
            let item = MailboxEvent::Withdrawn {
                session: Arc::clone(&queue.session),
                server: queue.server.clone(),
                ticket,
            };
            context.events.post_to_ticket(&worker, item);
            count += 1;
        }
        if count == 0
            && let Some(holder) = &queue.value.holder
            && holder.scope != HoldScope::Call
            && let Ok(ticket) = Token::parse(ticket_prefix.as_bytes())
        {
            let item = MailboxEvent::Withdrawn {
                session: Arc::clone(&queue.session),
                server: queue.server.clone(),
                ticket,
            };
            context.events.post_to_ticket(&holder.worker, item);
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
