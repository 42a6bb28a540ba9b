//! One queue: the holder of the turn of one session at one server, and the waiters in their order.
//!
//! Invariant: a ticket is in it once, as that of the holder or of a waiter.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::request::{Line, TurnRequest, TurnScope};
use crate::limits::TURN_CANCELLED_GRACE;
use crate::names::{Token, WorkerId};
use crate::time::{Millis, Monotonic};

/// The holder of the turn.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) worker: WorkerId,
    pub(super) ticket: Token,
    pub(super) number: u64,
    pub(super) lease: Millis,
    /// When it was granted.
    pub(super) since: Monotonic,
    pub(super) state: HoldState,
    pub(super) scope: HoldScope,
    /// When the turn ends regardless of its lease, because its call was cancelled.
    pub(super) ends: Option<Monotonic>,
}

/// For which calls a turn is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldScope {
    /// For the call that the ticket names.
    Call,
    /// For any call of the worker.
    Delegation {
        /// Whether the worker was notified that another caller waits.
        is_recalled: bool,
    },
    /// For one call that runs since the turn was delegated. The ticket does not name it.
    FormerDelegation,
}

/// Whether the holder of a turn knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldState {
    /// It was granted to a waiter whose worker does not know of it yet.
    Offered {
        /// When it passes to the next waiter.
        until: Monotonic,
    },
    /// Its holder knows of it.
    Held {
        /// When the lease lapses.
        until: Monotonic,
    },
}

impl Holder {
    pub(super) fn until(&self) -> Monotonic {
        let lease = match self.state {
            HoldState::Offered { until } | HoldState::Held { until } => until,
        };
        self.ends.map_or(lease, |ends| lease.min(ends))
    }

    /// Its call was cancelled: a renewal does not extend the turn beyond the grace period. A second cancellation
    /// changes nothing.
    pub(super) fn cancel(&mut self, mono: Monotonic) {
        self.ends.get_or_insert(mono.plus(TURN_CANCELLED_GRACE));
    }

    pub(super) const fn is_delegated(&self) -> bool {
        matches!(self.scope, HoldScope::Delegation { .. })
    }

    /// The holder asks again. The delegation goes on only if the holder wants it and nobody else waits.
    pub(super) fn ask_again(&mut self, scope: TurnScope, has_waiters: bool) {
        let HoldScope::Delegation { is_recalled } = self.scope else {
            return;
        };
        if is_recalled || has_waiters || scope == TurnScope::Call {
            self.scope = HoldScope::FormerDelegation;
        }
    }

    pub(super) const fn is_offered(&self) -> bool {
        matches!(self.state, HoldState::Offered { .. })
    }

    /// The holder knows of it, and its lease starts now.
    pub(super) fn hold(&mut self, mono: Monotonic) {
        self.state = HoldState::Held {
            until: mono.plus(self.lease),
        };
    }
}

/// A waiter.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) worker: WorkerId,
    pub(super) ticket: Token,
    pub(super) lease: Millis,
    /// When its call asked first.
    pub(super) since: Monotonic,
}

/// The place of a waiter: its line, and the number of its arrival.
pub(super) type Place = (Line, u64);

/// One queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) holder: Option<Holder>,
    waiters: BTreeMap<Place, Waiter>,
    places: BTreeMap<Token, Place>,
    arrivals: u64,
    /// The highest number that was granted in this queue.
    pub(super) highest: u64,
    /// Its session was created in the quiet time of the node or of its slot, which therefore does not apply to it.
    pub(super) is_of_new_session: bool,
    /// Until then only a caller that names the number of its turn gets one, as in the quiet time of the node.
    pub(super) quiet_until: Monotonic,
    /// When a full queue was last searched for waiters of dead workers.
    pub(super) swept_at: Option<Monotonic>,
}

impl Queue {
    /// An empty queue of a session that was created in the node's quiet time, or earlier.
    pub(super) fn opened(is_of_new_session: bool) -> Self {
        Self {
            is_of_new_session,
            ..Self::default()
        }
    }

    /// What to remember of a removed queue whose session may return; `None` if no caller relies on a turn of it.
    pub(super) fn restarted(&self) -> Option<Self> {
        let mut queue = Self {
            highest: self.highest,
            quiet_until: self.quiet_until,
            ..Self::default()
        };
        if let Some(holder) = self.holder.as_ref().filter(|holder| !holder.is_offered()) {
            // The holder itself may reclaim its turn.
            queue.highest = holder.number.saturating_sub(1);
            queue.quiet_until = queue.quiet_until.max(holder.until());
        }
        (queue.quiet_until > Monotonic::default()).then_some(queue)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// The waiters, in order.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values()
    }

    /// The waiters with their places, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = (&Place, &Waiter)> {
        self.waiters.iter()
    }

    /// How many callers have joined.
    pub(super) const fn arrivals(&self) -> u64 {
        self.arrivals
    }

    pub(super) const fn restore_arrivals(&mut self, arrivals: u64) {
        self.arrivals = arrivals;
    }

    /// Puts a waiter back where it was.
    pub(super) fn restore_waiter(&mut self, place: Place, waiter: Waiter) {
        self.places.insert(waiter.ticket.clone(), place);
        self.waiters.insert(place, waiter);
    }

    pub(super) fn is_holder(&self, ticket: &str) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.ticket.as_str() == ticket)
    }

    pub(super) fn awaits(&self, ticket: &Token) -> bool {
        self.places.contains_key(ticket)
    }

    /// Puts a waiter in its line, which waits since then.
    pub(super) fn join(&mut self, request: &TurnRequest, since: Monotonic) {
        self.arrivals = self.arrivals.saturating_add(1);
        let place = (request.line, self.arrivals);
        self.places.insert(request.ticket.clone(), place);
        self.waiters.insert(
            place,
            Waiter {
                worker: request.worker.clone(),
                ticket: request.ticket.clone(),
                lease: request.lease,
                since,
            },
        );
    }

    /// A waiter asks again. It keeps its place, unless it asks for a better line than its own.
    pub(super) fn ask_again(&mut self, request: &TurnRequest) {
        let Some(place) = self.places.get(&request.ticket) else {
            return;
        };
        if let Some(waiter) = self.waiters.get_mut(place) {
            if request.line < place.0 {
                let since = waiter.since;
                self.withdraw(&request.ticket);
                self.join(request, since);
                return;
            }
            waiter.worker = request.worker.clone();
            waiter.lease = request.lease;
        }
    }

    /// Removes a waiter. Returns whether there was one.
    pub(super) fn withdraw(&mut self, ticket: &str) -> bool {
        let place = self.places.remove(ticket);
        place.is_some_and(|place| self.waiters.remove(&place).is_some())
    }

    /// Removes the waiters whose ticket has this prefix.
    pub(super) fn take_with_prefix(&mut self, prefix: &str) -> Vec<Waiter> {
        let has_prefix = |ticket: &Token| ticket.as_str().starts_with(prefix);
        // Tickets with the same prefix are adjacent, and sort after the prefix itself.
        let range = (Bound::Included(prefix), Bound::Unbounded);
        let named = self.places.range::<str, _>(range);
        let named: Vec<Token> = named
            .map(|(ticket, _)| ticket)
            .take_while(|ticket| has_prefix(ticket))
            .cloned()
            .collect();
        let places = named.iter().filter_map(|ticket| self.places.remove(ticket));
        let places: Vec<Place> = places.collect();
        let waiters = places.iter().filter_map(|place| self.waiters.remove(place));
        waiters.collect()
    }

    /// Makes a holder the first waiter again: arrival numbers start above 0.
    pub(super) fn put_back(&mut self, holder: Holder) {
        let place = (Line::First, 0);
        self.places.insert(holder.ticket.clone(), place);
        self.waiters.insert(
            place,
            Waiter {
                worker: holder.worker,
                ticket: holder.ticket,
                lease: holder.lease,
                since: holder.since,
            },
        );
    }

    /// Removes the next waiter.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        let (_, waiter) = self.waiters.pop_first()?;
        self.places.remove(&waiter.ticket);
        Some(waiter)
    }

    /// Removes the waiters whose worker is not alive, with one lookup for each worker.
    pub(super) fn take_dead(&mut self, is_alive: impl Fn(&WorkerId) -> bool) -> Vec<Waiter> {
        let mut known: HashMap<WorkerId, bool> = HashMap::new();
        let mut is_dead = |_: &Place, waiter: &mut Waiter| {
            let alive = match known.get(&waiter.worker) {
                Some(alive) => *alive,
                None => {
                    let alive = is_alive(&waiter.worker);
                    known.insert(waiter.worker.clone(), alive);
                    alive
                }
            };
            !alive
        };
        let mut dead = Vec::new();
        let places: Vec<Place> = self
            .waiters
            .iter_mut()
            .filter_map(|(place, waiter)| is_dead(place, waiter).then_some(*place))
            .collect();
        for place in places {
            if let Some(waiter) = self.waiters.remove(&place) {
                self.places.remove(&waiter.ticket);
                dead.push(waiter);
            }
        }
        dead
    }
}
