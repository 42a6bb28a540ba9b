//! A snapshot of a queue for people. Its tickets are secrets, of which only digests are shown.

use super::Turns;
use crate::names::{ServerName, Token, WorkerId};
use crate::place::SessionPlace;
use crate::time::{Millis, Monotonic};

/// Most waiters that a view names.
const NAMED_MAX: usize = 5;

/// The holder of the turn of a session at one server, and its waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// The server.
    pub server: ServerName,
    /// The holder, if its lease is live.
    pub holder: Option<HolderView>,
    /// The number of waiters.
    pub waiting: usize,
    /// The first few waiters, in order.
    pub next: Vec<WaiterView>,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// The worker.
    pub worker: WorkerId,
    /// Its ticket.
    pub ticket: Token,
    /// How long its call has waited.
    pub waited: Millis,
}

/// The holder of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// The worker.
    pub worker: WorkerId,
    /// Its ticket.
    pub ticket: Token,
    /// The turn's number.
    pub number: u64,
    /// How long ago it got the turn.
    pub held: Millis,
    /// The time until it lapses.
    pub left: Millis,
    /// Whether the worker does not know of it yet.
    pub is_offered: bool,
    /// Whether it is delegated: the worker may give it to any of its calls.
    pub is_delegated: bool,
}

/// The holder of a turn, as reported to a waiting caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnHolder {
    /// The worker.
    pub worker: WorkerId,
    /// How long ago it got the turn.
    pub held_for: Millis,
}

impl Turns {
    /// The holder of the turn of a session at a server, if there is one.
    #[must_use]
    pub fn holder_of(
        &self,
        session: &SessionPlace,
        server: &ServerName,
        mono: Monotonic,
    ) -> Option<TurnHolder> {
        let queue = self.queues.get(self.queues.find(session, server)?)?;
        let holder = queue.value.holder.as_ref()?;
        Some(TurnHolder {
            worker: holder.worker.clone(),
            held_for: between(holder.since, mono),
        })
    }

    /// The queues of one session.
    #[must_use]
    pub fn of_session(&self, session: &SessionPlace, mono: Monotonic) -> Vec<QueueView> {
        let ids = self.queues.of_session(session).into_iter();
        let mut views: Vec<QueueView> = ids
            .filter_map(|id| {
                let spot = self.queues.get(id)?;
                let queue = &spot.value;
                let holder = queue.holder.as_ref();
                let holder = holder.filter(|holder| mono < holder.until());
                Some(QueueView {
                    server: spot.server.clone(),
                    holder: holder.map(|holder| HolderView {
                        worker: holder.worker.clone(),
                        ticket: holder.ticket.clone(),
                        number: holder.number,
                        held: between(holder.since, mono),
                        left: between(mono, holder.until()),
                        is_offered: holder.is_offered(),
                        is_delegated: holder.is_delegated(),
                    }),
                    waiting: queue.waiting(),
                    next: (queue.waiters().take(NAMED_MAX))
                        .map(|waiter| WaiterView {
                            worker: waiter.worker.clone(),
                            ticket: waiter.ticket.clone(),
                            waited: between(waiter.since, mono),
                        })
                        .collect(),
                })
            })
            .collect();
        views.sort_by(|one, other| one.server.cmp(&other.server));
        views
    }
}

/// The time from one moment to a later one.
fn between(from: Monotonic, to: Monotonic) -> Millis {
    Millis::new(to.ms().saturating_sub(from.ms()))
}
