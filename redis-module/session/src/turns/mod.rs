//! Turns: one call at a time to one server of one session, in the order of arrival, over all workers.
//!
//! A turn is asked for by a *ticket*, held under a lease, and numbered; the numbers of a node only grow. Invariants: of
//! one queue at most one ticket holds the turn, and it loses it at the moment its lease lapses on this node's monotonic
//! clock, a grace after its call was cancelled, or as soon as the node sees that its worker is dead; the next living
//! waiter of the queue then has it. A grant that its worker does not pick up (by news delivered, or by asking again)
//! within [`TURN_PICKUP`](crate::limits::TURN_PICKUP) passes on. A waiter leaves the queue by a grant, by LEAVE, because
//! another gateway withdraws it, with its session, or with its worker; unless it left by itself, it is told.
//!
//! Queues are in memory and are gone with a restart, while holders elsewhere still believe in their turns. So
//! after a restart, for the longest lease that could have been given (the *quiet time*), only callers that name the
//! number of a turn they held get one; everybody else waits in the order of arrival, except for sessions that were
//! created since. Of two who claim one turn again,
//! the higher number is right: it was given after the lower one had been lost. It gets the turn even if the lower one
//! came first, which then loses it. The same holds for one queue, for as long as its holder's lease runs, where the
//! session's key was given to something else: the session may come back, by SWAPDB or RENAME, before its holder has heard.
//!
//! Every step's work is bounded: what does not fit is due at once and done by the next [`Turns::advance`].

mod dissolving;
mod entering;
mod passing;
mod queue;
mod queue_view;
mod request;
mod withdrawing;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

pub use queue_view::{HolderView, QueueView, TurnHolder};
pub use request::{Line, TurnContext, TurnFigures, TurnLimits, TurnRequest, TurnStatus};

use crate::limits::TURN_QUEUES_MAX;
use crate::names::{ServerName, Token, WorkerId};
use crate::place::SessionPlace;
use crate::progress::StepProgress;
use crate::refusal::{Refusal, Stale};
use crate::spots::{Spot, SpotId, Spots};
use crate::time::{Millis, Monotonic};
use queue::{HoldState, Queue};

/// The queues of one node.
#[derive(Debug)]
pub struct Turns {
    queues: Spots<Queue>,
    /// Which queues' turns each worker holds.
    held_by: BTreeMap<WorkerId, BTreeSet<SpotId>>,
    /// Queues that are gone, and whose waiters have still to be told.
    dissolving: VecDeque<Spot<Queue>>,
    /// How many wait, in all queues that stand.
    waiting: usize,
    highest: u64,
    quiet_until: Monotonic,
    /// Sessions that were created in the node's quiet time: nobody holds an older turn of one.
    created: HashSet<SessionPlace>,
    /// The holder's worker whose life was last checked.
    checked: Option<WorkerId>,
    figures: TurnFigures,
}

impl Turns {
    /// A node that starts at `started`, while turns given before may still be held for `quiet`: the longest lease
    /// allowed.
    #[must_use]
    pub fn new(started: Monotonic, quiet: Millis) -> Self {
        Self {
            queues: Spots::default(),
            held_by: BTreeMap::new(),
            dissolving: VecDeque::new(),
            waiting: 0,
            highest: 0,
            quiet_until: started.plus(quiet),
            created: HashSet::new(),
            checked: None,
            figures: TurnFigures::default(),
        }
    }

    /// The node was promoted: what it knew of turns is not what was given meanwhile, and it begins with a quiet time.
    pub fn restart(&mut self, promoted: Monotonic, quiet: Millis) {
        self.dissolve(|_| true);
        self.created.clear();
        self.quiet_until = promoted.plus(quiet);
    }

    /// A session was created where nothing was under its key: its turns need not wait for the end of the node's quiet
    /// time. Beyond the bound on how many such are remembered, they do.
    pub fn note_created(&mut self, session: &SessionPlace, mono: Monotonic) {
        if mono < self.quiet_until && self.created.len() < TURN_QUEUES_MAX {
            self.created.insert(session.clone());
        }
    }

    /// Asks for the turn of a session at a server, or asks again.
    ///
    /// The holder renews its lease and gets the number that it has; a waiter keeps its place. Whoever lost its turn
    /// and asks again is a newcomer, and sees that by the number; with [`TurnRequest::held`] it is told.
    ///
    /// # Errors
    /// `ERR` for a lease out of its range; `STALE` for a worker that is dead, and for a turn claimed again that is
    /// another's now; `LIMIT` where a queue or the node is full.
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
            && let Some(number) = self.renew(id, request, context.mono)
        {
            return Ok(TurnStatus::Granted(number));
        }
        if let Some(number) = request.held {
            self.check_held(known, number, context)?;
        }
        let id = match known {
            Some(id) => id,
            None => self.open(session, server)?,
        };
        if let Some(number) = self.number_now(id, request, context) {
            self.take_over(id, request, number, context);
            return Ok(TurnStatus::Granted(number));
        }
        self.wait(id, request, context)?;
        Ok(TurnStatus::Waiting)
    }

    /// The holder passes the turn on, or a waiter withdraws.
    ///
    /// # Errors
    /// `STALE` for a ticket that does neither, or has lost its turn.
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

    /// The news of a grant is being handed to the worker. Answers whether it is still true; from then on the lease
    /// runs.
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

    /// Whether somebody has the turn of this session, or waits for it while nobody has: at `server`, or at any.
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

    /// The session is over: its queues are gone, and who waits is told to ask again.
    pub fn drop_session(&mut self, session: &SessionPlace) {
        self.created.remove(session);
        for id in self.queues.of_session(session) {
            self.dissolve_one(id);
        }
    }

    /// The same for all sessions of a database, which was flushed.
    pub fn drop_database(&mut self, database: i32) {
        self.created.retain(|session| session.database != database);
        self.dissolve(|session| session.database == database);
    }

    /// Another record is under the session's key now, or none, and the session may come back to it: its queues are gone, and
    /// until the lease of a holder lapses a turn is granted as in a quiet time.
    pub fn restart_session(&mut self, session: &SessionPlace) {
        self.created.remove(session);
        for id in self.queues.of_session(session) {
            self.restart_one(id);
        }
    }

    /// The same for all sessions of a database, which was swapped with another.
    pub fn restart_database(&mut self, database: i32) {
        self.created.retain(|session| session.database != database);
        let is_of_it = |session: &SessionPlace| session.database == database;
        for id in self.queues.of_sessions(is_of_it) {
            self.restart_one(id);
        }
    }

    /// When something is due; a moment long past where it is now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        if self.dissolving.is_empty() {
            self.queues.next_deadline()
        } else {
            Some(Monotonic::default())
        }
    }

    /// Does what is due: takes turns whose lease lapsed, grants that were not picked up and turns of the dead, and
    /// passes them on; begins to grant when the quiet time is over; tells who waited for what is gone. About `limit`
    /// steps of each.
    pub fn advance(&mut self, context: &mut TurnContext<'_>, limit: usize) -> StepProgress {
        if self.quiet_until <= context.mono {
            self.created = HashSet::new();
        }
        let told = self.tell_of_the_dissolved(context, limit);
        let taken = self.take_from_the_dead(context, limit);
        for _ in 0..limit {
            let Some(id) = self.queues.due(context.mono) else {
                return told.and(taken);
            };
            self.settle(id, context);
        }
        StepProgress::More
    }

    /// What was counted.
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
