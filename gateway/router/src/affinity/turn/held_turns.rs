//! Turns that have no task.
//!
//! Most calls end before their turn has to be renewed, and never release it. Such a turn is an entry here. When its call
//! ends, it ends with one command, or without any if it is [delegated](super::delegations). It gets its
//! [task](keeper) once it is [`TASK_AFTER`] old or its term is about to end, or when it is released.
//!
//! Invariants: a turn is here or has a task, never both; a turn that stays here is renewed in time, by its task; a turn
//! with a task is one call's alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::delegated_use::DelegatedUse;
use super::keeper::{self, FirstRenewal, OwnTurn, RENEW_EVERY};
use super::queue_entry::LEASE;
use super::running_call::{RunningCall, TurnHolder};
use super::signals::TurnSignals;
use mooring_usage::for_same_user;

/// Age of a turn at which it gets its task, which renews it at once.
const TASK_AFTER: Duration = Duration::from_millis(400);
/// Interval of looking for turns of that age, while there are turns.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A turn whose term ends within this time gets its task, too. A delegated one may be old when its call begins.
const ENDS_SOON: Duration = Duration::from_millis(400);

// As with a task from the beginning, one renewal may fail before the lease expires.
const _: () = assert!(
    (TASK_AFTER.as_millis() + LOOK_EVERY.as_millis()) + RENEW_EVERY.as_millis() * 2
        <= LEASE.as_millis()
);
const _: () = assert!(ENDS_SOON.as_millis() >= 2 * LOOK_EVERY.as_millis());

/// The turns of one thread that have no task.
#[derive(Debug, Default)]
pub(in crate::affinity) struct HeldTurns {
    turns: Mutex<Slab<HeldTurn>>,
    is_watched: AtomicBool,
}

#[derive(Debug)]
struct HeldTurn {
    turn: TurnOfCall,
    signals: Arc<TurnSignals>,
    since: Instant,
}

/// The turn of a call that was just granted. Dropping it ends the call's part in it.
#[derive(Debug)]
pub(super) enum TurnOfCall {
    /// It is the call's alone, and is left.
    Own(Box<OwnTurn>),
    /// It is delegated, and is given back.
    Delegated(DelegatedUse),
}

/// A call that takes its turn.
#[derive(Debug)]
pub(in crate::affinity) struct TurnTaker {
    pub(in crate::affinity) call: RunningCall,
    /// Where its turn is while that has no task.
    pub(super) held_turns: Arc<HeldTurns>,
}

impl TurnTaker {
    /// A call with this request id within its session, if its client can cancel it.
    pub(in crate::affinity) fn new(
        request_id: Option<Box<str>>,
        held_turns: &Arc<HeldTurns>,
    ) -> Self {
        Self {
            call: RunningCall::new(request_id, Arc::<HeldTurns>::clone(held_turns)),
            held_turns: Arc::clone(held_turns),
        }
    }
}

/// Where a turn was put. Another turn may have its place once it was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnPlace(usize);

impl HeldTurns {
    /// Holds a turn that was just granted.
    pub(super) fn insert(
        self: &Arc<Self>,
        turn: TurnOfCall,
        signals: &Arc<TurnSignals>,
    ) -> TurnPlace {
        let place = TurnPlace(self.turns().insert(HeldTurn {
            turn,
            signals: Arc::clone(signals),
            since: Instant::now(),
        }));
        if signals.is_to_be_kept() {
            self.keep(place, signals, FirstRenewal::Now);
        } else if !self.is_watched.swap(true, Ordering::AcqRel) {
            tokio::spawn(Arc::clone(self).watch());
        }
        place
    }

    /// Ends the turn with these signals, if it is here. Returns whether it was.
    pub(super) fn end(&self, place: TurnPlace, signals: &Arc<TurnSignals>) -> bool {
        // Dropping it ends it.
        self.take(place, signals).is_some()
    }

    /// Gives the turn with these signals its task, if it is here.
    pub(super) fn keep(&self, place: TurnPlace, signals: &Arc<TurnSignals>, first: FirstRenewal) {
        if let Some(turn) = self.take(place, signals) {
            turn.keep(first);
        }
    }

    fn take(&self, TurnPlace(place): TurnPlace, signals: &Arc<TurnSignals>) -> Option<HeldTurn> {
        let mut turns = self.turns();
        let is_same = |turn: &HeldTurn| Arc::ptr_eq(&turn.signals, signals);
        turns
            .get(place)
            .is_some_and(is_same)
            .then(|| turns.remove(place))
    }

    /// Gives turns their tasks in time, as long as there are any.
    async fn watch(self: Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            let mut turns = self.turns();
            let is_due = |turn: &HeldTurn| {
                turn.since.elapsed() >= TASK_AFTER || turn.signals.time_left() <= ENDS_SOON
            };
            let due: Vec<usize> = (turns.iter())
                .filter_map(|(place, turn)| is_due(turn).then_some(place))
                .collect();
            for place in due {
                turns.remove(place).keep(FirstRenewal::Now);
            }
            if turns.is_empty() {
                // Under the lock, so that a turn which is inserted next is watched.
                self.is_watched.store(false, Ordering::Release);
                return;
            }
        }
    }

    fn turns(&self) -> MutexGuard<'_, Slab<HeldTurn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnHolder for HeldTurns {
    fn keep_wherever(&self, signals: &Arc<TurnSignals>) {
        signals.note_to_keep();
        let is_it = |(place, turn): (usize, &HeldTurn)| {
            Arc::ptr_eq(&turn.signals, signals).then_some(TurnPlace(place))
        };
        let place = self.turns().iter().find_map(is_it);
        if let Some(place) = place {
            self.keep(place, signals, FirstRenewal::Now);
        }
    }
}

impl HeldTurn {
    fn keep(self, first: FirstRenewal) {
        let own = match self.turn {
            TurnOfCall::Own(own) => own,
            // It is kept once.
            TurnOfCall::Delegated(used) => match used.keep() {
                Some(own) => own,
                None => return,
            },
        };
        // Without a runtime the process is stopping, and the turn ends here.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(for_same_user(keeper::keep(*own, self.signals, first)));
        }
    }
}
