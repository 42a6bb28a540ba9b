//! The task of a turn: holds, releases and resumes it as the call commands, and ends it with the call.
//!
//! A turn has this task once it is not [short](super::held_turns). A turn with a patience is released when its call's
//! server has been silent for that long: its client may have given up without a cancellation, and the other calls would
//! wait in vain. A later message of the server resumes the turn. Invariants: the call never waits for this task; the
//! task ends with the call; a lost turn is not requested again, because its call may have been cancelled and would
//! block the others for as long as its server is silent.

use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::TurnError;
use super::queue_entry::{ASK_AGAIN_AFTER, LEASE, QueueEntry};
use mooring_store::{AnsweredBy, EnterReply, StoreError};

/// Interval of renewals: one may fail before the lease expires.
pub(super) const RENEW_EVERY: Duration = Duration::from_millis(600);

const _: () = assert!(RENEW_EVERY.as_millis() * 3 <= LEASE.as_millis());

/// The call's command to its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TurnCommand {
    /// Have the turn.
    Hold,
    /// Let other calls have it meanwhile.
    Release,
    /// The call is over. Final.
    End,
}

/// The signals between a call and the task of its turn, in one allocation.
#[derive(Debug)]
pub(super) struct TurnSignals {
    /// A [`TurnCommand`].
    command: AtomicU8,
    /// The task waits for it, and nothing else does.
    is_commanded: Notify,
    is_lost: AtomicBool,
    loss: Notify,
    begun: Instant,
    /// When the call's server last said something, in milliseconds since `begun`.
    heard_ms: AtomicU64,
}

impl Default for TurnSignals {
    fn default() -> Self {
        Self {
            command: AtomicU8::default(),
            is_commanded: Notify::default(),
            is_lost: AtomicBool::default(),
            loss: Notify::default(),
            begun: Instant::now(),
            heard_ms: AtomicU64::default(),
        }
    }
}

impl TurnSignals {
    /// The call's server has said something.
    pub(super) fn hear(&self) {
        let since = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(since, Ordering::Release);
    }

    /// Returns when the call's server has been silent for so long; never without a patience.
    async fn silent(&self, patience: Option<Duration>) {
        let Some(patience) = patience else {
            return future::pending().await;
        };
        loop {
            let heard = Duration::from_millis(self.heard_ms.load(Ordering::Acquire));
            let silent = self.begun.elapsed().saturating_sub(heard);
            if silent >= patience {
                return;
            }
            sleep(patience.saturating_sub(silent)).await;
        }
    }

    /// Releases the turn, unless the call has ended.
    fn release(&self) {
        let (hold, release) = (TurnCommand::Hold as u8, TurnCommand::Release as u8);
        // Any other command stays.
        let _ = (self.command).compare_exchange(hold, release, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Commands the task. Wakes it only for a new command.
    pub(super) fn command(&self, command: TurnCommand) {
        if self.command.swap(command as u8, Ordering::AcqRel) != command as u8 {
            self.is_commanded.notify_one();
        }
    }

    /// Whether this is the last command.
    pub(super) fn is(&self, command: TurnCommand) -> bool {
        self.command.load(Ordering::Acquire) == command as u8
    }

    /// Whether another call may have the turn.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns when the turn is lost.
    pub(super) async fn lost(&self) {
        // Notified from here on, so that a loss after the check is not missed.
        let lost = self.loss.notified();
        if !self.is_lost() {
            lost.await;
        }
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.loss.notify_waiters();
    }

    /// Returns after the command.
    async fn until(&self, command: TurnCommand) -> Result<(), CallEnded> {
        loop {
            if self.is(command) {
                return Ok(());
            }
            if self.is(TurnCommand::End) {
                return Err(CallEnded);
            }
            self.is_commanded.notified().await;
        }
    }
}

/// The call is over.
struct CallEnded;

/// The numbers of a ticket's turn. The store and the in-memory fallback number separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TurnNumbers {
    /// The store's, which fences.
    pub(super) store: Option<u64>,
    memory: Option<u64>,
}

impl TurnNumbers {
    pub(super) fn of(entered: &EnterReply) -> Self {
        let mut numbers = Self::default();
        numbers.update(entered);
        numbers
    }

    /// Records the answer to a renewal. Returns whether the turn was lost.
    fn update(&mut self, entered: &EnterReply) -> bool {
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

/// Keeps the turn of the ticket at `entry` until the call is over.
pub(super) async fn keep(
    mut entry: QueueEntry,
    numbers: TurnNumbers,
    signals: Arc<TurnSignals>,
    first: FirstRenewal,
) {
    let mut given = TurnGrant::Already(numbers, first);
    loop {
        let patience = entry.patience();
        let commanded = tokio::select! {
            biased;
            commanded = signals.until(TurnCommand::Release) => commanded,
            () = hold(&mut entry, given) => return signals.lose(),
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

/// Whether the ticket has its turn.
#[derive(Clone, Copy)]
enum TurnGrant {
    /// It has, with these numbers.
    Already(TurnNumbers, FirstRenewal),
    /// It has to request it.
    NotYet,
}

/// Returns when the turn is lost or unobtainable.
async fn hold(entry: &mut QueueEntry, given: TurnGrant) {
    let (numbers, first) = match given {
        TurnGrant::Already(numbers, first) => (numbers, first),
        TurnGrant::NotYet => match Box::pin(acquire(entry)).await {
            Ok(entered) => (TurnNumbers::of(&entered), FirstRenewal::Later),
            Err(error) => {
                tracing::debug!(%error, "a call continues without its turn");
                return;
            }
        },
    };
    renew(entry, numbers, first).await;
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
async fn renew(entry: &mut QueueEntry, mut numbers: TurnNumbers, first: FirstRenewal) {
    let mut pause = match first {
        FirstRenewal::Now => Duration::ZERO,
        FirstRenewal::Later => RENEW_EVERY,
    };
    loop {
        sleep(pause).await;
        pause = RENEW_EVERY;
        let was_degraded = entry.store().is_degraded();
        let is_lost = match Box::pin(entry.ask(numbers.store)).await {
            Ok(entered) => numbers.update(&entered),
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
