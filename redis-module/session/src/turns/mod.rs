//! Turns: one call at a time to one server of one session, in the order of arrival, over all workers.
//!
//! A caller asks for a turn with a *ticket* and holds it under a lease. Turns are numbered, and the numbers of a node
//! only grow. Invariants: of one queue at most one ticket holds the turn. The holder loses it at the moment its lease
//! lapses on this node's monotonic clock, a grace period after its call was cancelled, or as soon as the node sees that
//! its worker is dead; then the next waiter with a living worker has it. A grant that its worker does not pick up (by
//! taking the event, or by asking again) within [`TURN_PICKUP`](crate::limits::TURN_PICKUP) passes on. A waiter leaves
//! the queue by a grant, by LEAVE, when another gateway withdraws it, with its session, or with its worker. Unless it
//! left by itself, it is notified.
//!
//! Queues are in memory and are lost at a restart, while holders still rely on their turns. So after a restart, for the
//! longest lease that could have been granted (the *quiet time*), only callers that name the number of a turn that they
//! held get one. All others wait in the order of arrival, except for sessions that were created since. If two callers
//! reclaim one turn, the higher number is right: it was granted after the lower one had been lost. Its caller gets the
//! turn even if the lower one came first, which then loses it. The same applies to a single queue, until its holder's
//! lease lapses, if the session's key was given to something else: the session may return, by SWAPDB or RENAME, before
//! its holder notices.
//!
//! A session may also arrive from another node, with its slot. Its turns are with that node, and their holders rely on them
//! for as long, so a slot with [`arrivals`] is quiet as well.
//!
//! A turn can be [delegated](delegating) to the worker of its caller: for all its calls, without asking, until the lease
//! lapses or another caller waits.
//!
//! Every step's work is bounded: the rest is due at once and is done by the next [`Turns::advance`].

mod arrivals;
mod delegating;
mod dissolving;
mod entering;
mod passing;
mod queue;
mod queue_view;
mod request;
mod stored;
mod streaks;
mod withdrawing;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

pub use queue_view::{HolderView, QueueView, TurnHolder, WaiterView};
pub use request::{Line, TurnContext, TurnFigures, TurnLimits, TurnRequest, TurnScope, TurnStatus};
pub use stored::CorruptTurns;

use crate::limits::TURN_QUEUES_MAX;
use crate::names::{ServerName, Token, WorkerId};
use crate::place::SessionPlace;
use crate::progress::StepProgress;
use crate::refusal::{Refusal, Stale};
use crate::spots::{Spot, SpotId, Spots};
use crate::time::{Millis, Monotonic};
use arrivals::Arrivals;
use queue::{HoldState, Queue};
use streaks::Streaks;

/// The queues of one node.
#[derive(Debug)]
pub struct Turns {
    queues: Spots<Queue>,
    /// The queues whose turn each worker holds.
    held_by: BTreeMap<WorkerId, BTreeSet<SpotId>>,
    /// Removed queues whose waiters are still to be notified.
    dissolving: VecDeque<Spot<Queue>>,
    /// The number of waiters in all queues.
    waiting: usize,
    highest: u64,
    quiet_until: Monotonic,
    arrivals: Arrivals,
    /// Sessions that were created in the quiet time of the node or of their slot: no caller holds an older turn of them.
    created: HashSet<SessionPlace>,
    /// The worker of a holder whose liveness was last checked.
    checked: Option<WorkerId>,
    streaks: Streaks,
    figures: TurnFigures,
}

impl Turns {
    /// A node that starts at `started`. Turns granted before may still be held for `quiet`: the longest lease allowed.
    #[must_use]
    pub fn new(started: Monotonic, quiet: Millis) -> Self {
        Self {
            queues: Spots::default(),
            held_by: BTreeMap::new(),
            dissolving: VecDeque::new(),
            waiting: 0,
            highest: 0,
            quiet_until: started.plus(quiet),
            arrivals: Arrivals::default(),
            created: HashSet::new(),
            checked: None,
            streaks: Streaks::default(),
            figures: TurnFigures::default(),
        }
    }

    /// The node was promoted: its queues are outdated, so it drops them and begins with a quiet time.
    pub fn restart(&mut self, promoted: Monotonic, quiet: Millis) {
        self.dissolve(|_| true);
        self.created.clear();
        self.arrivals.clear();
        self.streaks.clear();
        self.quiet_until = promoted.plus(quiet);
    }

    /// A session was created under a key that did not exist: its turns need not wait for the end of the quiet time of the
    /// node or of its slot, unless too many such sessions are remembered already.
    pub fn note_created(&mut self, session: &SessionPlace, mono: Monotonic) {
        let is_quiet = mono < self.quiet_until || self.arrivals.has(session);
        if is_quiet && self.created.len() < TURN_QUEUES_MAX {
            self.created.insert(session.clone());
        }
    }

    /// A session has arrived that another node may have granted turns of.
    pub fn note_arrived(&mut self, session: &SessionPlace) {
        self.created.remove(session);
        self.arrivals.note(session);
    }

    /// Asks for the turn of a session at a server, or asks again.
    ///
    /// The holder renews its lease and gets the same number; a waiter keeps its place. A caller that lost its turn
    /// joins the queue as a new one, and can tell by the number; with [`TurnRequest::held`] it gets an error.
    ///
    /// # Errors
    /// `ERR` for a lease out of its range; `STALE` for a dead worker, and for a reclaimed turn that another caller has
    /// or had since; `LIMIT` if a queue or the node is full.
    pub fn enter(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        request: &TurnRequest,
        context: &mut TurnContext<'_>,
    ) -> Result<TurnStatus, Refusal> {
        entering::check_lease(request.lease, context.limits.lease_max)?;
        if !context.workers.is_alive(&request.worker) {
            return Err(Refusal::Stale(Stale::Worker));
        }
        let known = self.queues.find(session, server);
        if let Some(id) = known {
            self.settle(id, context);
        }
        // Settling may have dropped the queue.
        let known = known.filter(|id| self.queues.get(*id).is_some());
        if let Some(id) = known
            && let Some(status) = self.renew(id, request, context)
        {
            return Ok(status);
        }
        if let Some(number) = request.held {
            self.check_held(known, number, context)?;
        }
        let id = match known {
            Some(id) => id,
            None => self.open(session, server, context)?,
        };
        if let Some(number) = self.number_now(id, request, context) {
            return Ok(self.take_over(id, request, number, context));
        }
        self.wait(id, request, context)?;
        Ok(TurnStatus::Waiting)
    }

    /// The holder passes the turn on, or a waiter leaves the queue.
    ///
    /// # Errors
    /// `STALE` for a ticket that neither has the turn nor waits for it.
    pub fn leave(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        ticket: &str,
        context: &mut TurnContext<'_>,
    ) -> Result<(), Refusal> {
        let stale = Refusal::Stale(Stale::Turn);
        let id = self.queues.find(session, server).ok_or(stale.clone())?;
        self.settle(id, context);
        let queue = self.queues.get_mut(id).ok_or(stale.clone())?;
        if queue.value.is_holder(ticket) {
            self.forget_watch(id, context);
            self.pass_on(id, context);
            return Ok(());
        }
        if !queue.value.withdraw(ticket) {
            return Err(stale);
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.close_if_empty(id, context.mono);
        Ok(())
    }

    /// The event of a grant is being delivered to the worker. Returns whether the grant is still valid; if so, its
    /// lease starts now.
    pub fn pick_up(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        ticket: &Token,
        turn: u64,
        mono: Monotonic,
    ) -> bool {
        let Some(id) = self.queues.find(session, server) else {
            return false;
        };
        let holder = self
            .queues
            .get_mut(id)
            .and_then(|queue| queue.value.holder.as_mut());
        let Some(holder) = holder else {
            return false;
        };
        if holder.ticket != *ticket || holder.number != turn || holder.until() <= mono {
            return false;
        }
        if matches!(holder.state, HoldState::Offered { .. }) {
            holder.hold(mono);
            let until = holder.until();
            self.queues.set_deadline(id, Some(until));
        }
        true
    }

    /// Whether a caller has a turn of this session, or waits for one: at `server`, or at any server.
    #[must_use]
    pub fn holds(
        &self,
        session: &SessionPlace,
        server: Option<&ServerName>,
        mono: Monotonic,
    ) -> bool {
        let is_held = |id: SpotId| {
            let queue = self.queues.get(id).map(|spot| &spot.value);
            queue.is_some_and(|queue| {
                let held = queue.holder.as_ref();
                held.is_some_and(|holder| mono < holder.until()) || queue.waiting() > 0
            })
        };
        match server {
            Some(server) => self.queues.find(session, server).is_some_and(is_held),
            None => self.queues.of_session(session).into_iter().any(is_held),
        }
    }

    /// The session ended: removes its queues and notifies their waiters to ask again.
    pub fn drop_session(&mut self, session: &SessionPlace) {
        self.created.remove(session);
        self.streaks.forget_session(session);
        for id in self.queues.of_session(session) {
            self.dissolve_one(id);
        }
    }

    /// The same for all sessions of a database that was flushed.
    pub fn drop_database(&mut self, database: i32) {
        self.created.retain(|session| session.database != database);
        self.streaks.clear();
        self.dissolve(|session| session.database == database);
    }

    /// The session's key now holds another record or none, and the session may return to it. Removes its queues; until
    /// the lease of a holder lapses, its turn is granted as in a quiet time.
    pub fn restart_session(&mut self, session: &SessionPlace) {
        self.created.remove(session);
        self.streaks.forget_session(session);
        for id in self.queues.of_session(session) {
            self.restart_one(id);
        }
    }

    /// The same for all sessions of a database that was swapped with another.
    pub fn restart_database(&mut self, database: i32) {
        self.created.retain(|session| session.database != database);
        self.streaks.clear();
        let is_of_it = |session: &SessionPlace| session.database == database;
        for id in self.queues.of_sessions(is_of_it) {
            self.restart_one(id);
        }
    }

    /// When [`advance`](Self::advance) is due; a time in the past if it is due now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        if self.dissolving.is_empty() {
            self.queues.next_deadline()
        } else {
            Some(Monotonic::default())
        }
    }

    /// Does the due work: passes on turns whose lease lapsed, grants that were not picked up and turns of dead workers;
    /// starts to grant when the quiet time is over; notifies the waiters of removed queues. About `limit` steps of
    /// each.
    pub fn advance(&mut self, context: &mut TurnContext<'_>, limit: usize) -> StepProgress {
        if self.quiet_until <= context.mono && self.arrivals.is_empty() {
            self.created = HashSet::new();
        }
        self.streaks.drop_old(context.mono, limit);
        let notified = self.notify_dissolved(context, limit);
        let taken = self.reclaim_from_dead_workers(context, limit);
        for _ in 0..limit {
            let Some(id) = self.queues.due(context.mono) else {
                return notified.and(taken);
            };
            self.settle(id, context);
        }
        StepProgress::More
    }

    /// The counters.
    #[must_use]
    pub const fn figures(&self) -> TurnFigures {
        self.figures
    }

    /// How many queues there are, and how many callers wait in all of them.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.queues.len(), self.waiting)
    }
}
