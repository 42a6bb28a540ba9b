//! A snapshot of a queue for people, without tickets, which are secrets.

use super::Turns;
use crate::names::{ServerName, WorkerId};
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
    /// The workers of the first few waiters, in order.
    pub next: Vec<WorkerId>,
}

/// The holder of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// The worker.
    pub worker: WorkerId,
    /// The turn's number.
    pub number: u64,
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
            held_for: Millis::new(mono.ms().saturating_sub(holder.since.ms())),
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
                        number: holder.number,
                        left: Millis::new(holder.until().ms().saturating_sub(mono.ms())),
                        is_offered: holder.is_offered(),
                        is_delegated: holder.is_delegated(),
                    }),
                    waiting: queue.waiting(),
                    next: queue.waiters().take(NAMED_MAX).cloned().collect(),
                })
            })
            .collect();
        views.sort_by(|one, other| one.server.cmp(&other.server));
        views
    }
}
