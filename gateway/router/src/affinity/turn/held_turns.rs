//! Turns that have no task.
//!
//! Most calls end before their turn has to be renewed, and never release it. Such a turn is an entry here, and ends with
//! one command when its call does. It gets its [task](keeper) once it is [`TASK_AFTER`] old, or when it is released.
//!
//! Invariants: a turn is here or has a task, never both; a turn that stays here is renewed in time, by its task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::time::{Instant, sleep};

use super::keeper::{self, FirstRenewal, RENEW_EVERY, TurnNumbers, TurnSignals};
use super::queue_entry::{LEASE, QueueEntry};
use mooring_usage::for_same_user;

/// Age of a turn at which it gets its task, which renews it at once.
const TASK_AFTER: Duration = Duration::from_millis(400);
/// Interval of looking for turns of that age, while there are turns.
const LOOK_EVERY: Duration = Duration::from_millis(200);

// As with a task from the beginning, one renewal may fail before the lease expires.
const _: () = assert!(
    (TASK_AFTER.as_millis() + LOOK_EVERY.as_millis()) + RENEW_EVERY.as_millis() * 2
        <= LEASE.as_millis()
);

/// The turns of one thread that have no task.
#[derive(Debug, Default)]
pub(in crate::affinity) struct HeldTurns {
    turns: Mutex<Slab<HeldTurn>>,
    is_watched: AtomicBool,
}

#[derive(Debug)]
struct HeldTurn {
    entry: QueueEntry,
    numbers: TurnNumbers,
    signals: Arc<TurnSignals>,
    since: Instant,
}

/// Where a turn was put. Another turn may have its place once it was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnPlace(usize);

impl HeldTurns {
    /// Holds a turn that was just granted.
    pub(super) fn insert(
        self: &Arc<Self>,
        entry: QueueEntry,
        numbers: TurnNumbers,
        signals: &Arc<TurnSignals>,
    ) -> TurnPlace {
        let place = self.turns().insert(HeldTurn {
            entry,
            numbers,
            signals: Arc::clone(signals),
            since: Instant::now(),
        });
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            tokio::spawn(Arc::clone(self).watch());
        }
        TurnPlace(place)
    }

    /// Ends the turn with these signals, if it is here. Returns whether it was.
    pub(super) fn end(&self, place: TurnPlace, signals: &Arc<TurnSignals>) -> bool {
        // Dropping its entry releases the ticket.
        self.take(place, signals).is_some()
    }

    /// Gives the turn with these signals its task, if it is here.
    pub(super) fn keep(&self, place: TurnPlace, signals: &Arc<TurnSignals>) {
        if let Some(turn) = self.take(place, signals) {
            turn.keep(FirstRenewal::Later);
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
            let is_due = |turn: &HeldTurn| turn.since.elapsed() >= TASK_AFTER;
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

impl HeldTurn {
    fn keep(self, first: FirstRenewal) {
        tokio::spawn(for_same_user(keeper::keep(
            self.entry,
            self.numbers,
            self.signals,
            first,
        )));
    }
}
