//! The task of a turn: holds, releases and resumes it as the call commands, and ends it with the call.
//!
//! A turn has this task once it is not [short](super::held_turns). A turn with a patience is released when its call's
//! server has been silent for that long: its client may have given up without a cancellation, and the other calls would
//! wait in vain. A later message of the server resumes the turn. Invariants: the call never waits for this task; the
//! task ends with the call; a lost turn is not requested again, because its call may have been cancelled and would
//! block the others for as long as its server is silent.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::limits::TURN_CANCELLED_GRACE;
use tokio::time::sleep;

use super::kept_calls::KeptCall;
use super::queue_entry::{ASK_AGAIN_AFTER, LEASE, QueueEntry};
use super::signals::{TurnCommand, TurnSignals};
use mooring_store::{AnsweredBy, EnterReply, StoreError, TurnError};

/// Interval of renewals: one may fail before the lease expires.
pub(super) const RENEW_EVERY: Duration = Duration::from_millis(600);

const _: () = assert!(RENEW_EVERY.as_millis() * 3 <= LEASE.as_millis());

/// The numbers of a ticket's turn. The store and the in-memory fallback number separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::affinity) struct TurnNumbers {
    /// The store's, which fences.
    pub(super) store: Option<u64>,
    memory: Option<u64>,
}

impl TurnNumbers {
    pub(in crate::affinity) fn of(entered: &EnterReply) -> Self {
        let mut numbers = Self::default();
        numbers.update(entered);
        numbers
    }

    /// Records the answer to a renewal. Returns whether the turn was lost.
    pub(super) fn update(&mut self, entered: &EnterReply) -> bool {
        let number = match entered.answered_by {
            AnsweredBy::Store => {
                // Numbers of the fallback are valid for one outage.
                self.memory = None;
                &mut self.store
            }
            AnsweredBy::Memory => &mut self.memory,
        };
        let is_lost = number.is_some() && *number != entered.turn;
        *number = entered.turn;
        is_lost
    }
}

/// When a turn is renewed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstRenewal {
    /// At once.
    Now,
    /// After [`RENEW_EVERY`].
    Later,
}

/// A turn that is one call's alone.
#[derive(Debug)]
pub(in crate::affinity) struct OwnTurn {
    pub(in crate::affinity) entry: QueueEntry,
    pub(in crate::affinity) numbers: TurnNumbers,
    /// Of a turn that was delegated before.
    pub(in crate::affinity) kept: Option<KeptCall>,
}

impl OwnTurn {
    /// One that the store has just granted.
    pub(super) fn new(entry: QueueEntry, entered: &EnterReply) -> Box<Self> {
        Box::new(Self {
            numbers: TurnNumbers::of(entered),
            entry,
            kept: None,
        })
    }
}

/// Keeps the turn until the call is over.
pub(super) async fn keep(turn: OwnTurn, signals: Arc<TurnSignals>, first: FirstRenewal) {
    let OwnTurn {
        mut entry,
        numbers,
        kept: _kept,
    } = turn;
    let mut given = TurnGrant::Already(numbers, first);
    loop {
        let patience = entry.patience();
        let commanded = tokio::select! {
            biased;
            commanded = signals.until(TurnCommand::Release) => commanded,
            () = hold(&mut entry, given, &signals) => return signals.lose(),
            () = cancelled_for_long(&signals) => return signals.lose(),
            () = signals.silent(patience) => {
                entry.log_silence();
                signals.release();
                Ok(())
            }
        };
        let resumed = entry.resumed();
        // Releases the ticket.
        drop(entry);
        if commanded.is_err() || signals.until(TurnCommand::Hold).await.is_err() {
            return;
        }
        let Ok(next) = resumed else {
            return;
        };
        entry = next;
        given = TurnGrant::NotYet;
    }
}

/// Returns when the call has had its turn for as long as a cancelled one may. The store itself ends only the turns whose
/// tickets name their calls.
async fn cancelled_for_long(signals: &TurnSignals) {
    signals.withdrawn().await;
    sleep(Duration::from_millis(TURN_CANCELLED_GRACE.get())).await;
}

/// Whether the ticket has its turn.
#[derive(Clone, Copy)]
enum TurnGrant {
    /// It has, with these numbers.
    Already(TurnNumbers, FirstRenewal),
    /// It has to request it.
    NotYet,
}

/// Returns when the turn is lost or unobtainable.
async fn hold(entry: &mut QueueEntry, given: TurnGrant, signals: &TurnSignals) {
    let (numbers, first) = match given {
        TurnGrant::Already(numbers, first) => (numbers, first),
        TurnGrant::NotYet => match Box::pin(acquire(entry)).await {
            Ok(entered) => {
                signals.extend(entry.term());
                (TurnNumbers::of(&entered), FirstRenewal::Later)
            }
            Err(error) => {
                tracing::debug!(%error, "a call continues without its turn");
                return;
            }
        },
    };
    renew(entry, numbers, first, signals).await;
}

/// Waits for the turn without a time limit, even while it cannot be requested.
async fn acquire(entry: &mut QueueEntry) -> Result<EnterReply, TurnError> {
    loop {
        match entry.wait(None).await {
            Err(
                TurnError::TooMany
                | TurnError::Store(StoreError::Away(_) | StoreError::NotReady(_)),
            ) => sleep(ASK_AGAIN_AFTER).await,
            answer => return answer,
        }
    }
}

/// Renews the turn; returns when it is lost.
async fn renew(
    entry: &mut QueueEntry,
    mut numbers: TurnNumbers,
    first: FirstRenewal,
    signals: &TurnSignals,
) {
    let mut pause = match first {
        FirstRenewal::Now => Duration::ZERO,
        FirstRenewal::Later => RENEW_EVERY,
    };
    loop {
        sleep(pause).await;
        pause = RENEW_EVERY;
        // A call that was not sent claims no turn that another one may have had since: it asks for a new one.
        if signals.has_lapsed_unsent() {
            return;
        }
        let was_degraded = entry.store().is_degraded();
        let is_lost = match Box::pin(entry.ask(numbers.store)).await {
            Ok(entered) => {
                let is_lost = numbers.update(&entered);
                if entered.turn.is_some() && !is_lost {
                    signals.extend(entry.term());
                }
                is_lost
            }
            // A refusal of the fallback is not about a turn of the store.
            Err(StoreError::Refused(_)) => {
                numbers.store.is_some() && !was_degraded && !entry.store().is_degraded()
            }
            Err(_) => false,
        };
        if is_lost {
            return;
        }
    }
}
