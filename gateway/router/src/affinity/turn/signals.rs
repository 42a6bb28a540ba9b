//! The signals between a call and the task of its turn.
//!
//! Invariant: a signal is kept until it is seen, so none is lost between two waits.

use std::future;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use mooring_delivery::{BootTime, Term};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::affinity::boot_clock::{AtomicBootTime, boot_now};
use mooring_upstream::PermitSource;

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
pub(in crate::affinity) struct TurnSignals {
    /// The request's id within its session, if its client can cancel it.
    request_id: Option<Box<str>>,
    /// A [`TurnCommand`].
    command: AtomicU8,
    /// The task waits for it, and nothing else does.
    is_commanded: Notify,
    is_lost: AtomicBool,
    /// When the turn may be another caller's unless it was renewed.
    ends_at: AtomicBootTime,
    loss: Notify,
    /// Whether the call may have been sent.
    is_sent: AtomicBool,
    /// The client cancelled the call, whose ticket does not tell the store.
    is_withdrawn: AtomicBool,
    withdrawal: Notify,
    /// The turn is to be the call's alone.
    is_to_be_kept: AtomicBool,
    begun: Instant,
    /// When the call's server last said something, in milliseconds since `begun`.
    heard_ms: AtomicU64,
}

impl TurnSignals {
    /// Those of a request with this id.
    pub(super) fn of(request_id: Option<Box<str>>) -> Self {
        Self {
            request_id,
            command: AtomicU8::default(),
            is_commanded: Notify::default(),
            is_lost: AtomicBool::default(),
            ends_at: AtomicBootTime::default(),
            loss: Notify::default(),
            is_sent: AtomicBool::default(),
            is_withdrawn: AtomicBool::default(),
            withdrawal: Notify::default(),
            is_to_be_kept: AtomicBool::default(),
            begun: Instant::now(),
            heard_ms: AtomicU64::default(),
        }
    }

    pub(super) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The call's server has said something.
    pub(super) fn hear(&self) {
        let since = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(since, Ordering::Release);
    }

    /// Returns when the call's server has been silent for so long; never without a patience.
    pub(super) async fn silent(&self, patience: Option<Duration>) {
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
    pub(super) fn release(&self) {
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

    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.loss.notify_waiters();
    }

    /// The turn was granted or renewed for this term.
    pub(super) fn extend(&self, term: Term) {
        self.ends_at.store(term.ends_at());
    }

    /// The turn may end earlier than its term, unless it is renewed.
    pub(super) fn end_at(&self, at: BootTime) {
        self.ends_at.bring_forward(at);
    }

    /// How long the turn still excludes all other calls; zero if it does not.
    pub(super) fn time_left(&self) -> Duration {
        let ends_at = self.ends_at.load();
        ends_at.map_or(Duration::ZERO, |ends_at| ends_at.since(boot_now()))
    }

    /// Whether the call has the turn and no other call can have it now.
    pub(super) fn is_valid(&self) -> bool {
        self.is(TurnCommand::Hold) && !self.is_lost() && !self.time_left().is_zero()
    }

    /// The call may have been sent.
    pub(super) fn note_sent(&self) {
        self.is_sent.store(true, Ordering::Release);
    }

    /// Whether another call may have had the turn since the store last granted or renewed it, and this call was not sent:
    /// then it need not keep others out.
    pub(super) fn has_lapsed_unsent(&self) -> bool {
        !self.is_sent.load(Ordering::Acquire) && self.time_left().is_zero()
    }

    /// The client cancelled the call.
    pub(super) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Release);
        self.withdrawal.notify_one();
    }

    /// Returns when the client cancelled the call.
    pub(super) async fn withdrawn(&self) {
        while !self.is_withdrawn.load(Ordering::Acquire) {
            self.withdrawal.notified().await;
        }
    }

    /// The turn is to be the call's alone. One that is [held](super::HeldTurns) from then on is kept at once.
    pub(super) fn note_to_keep(&self) {
        self.is_to_be_kept.store(true, Ordering::Release);
    }

    pub(super) fn is_to_be_kept(&self) -> bool {
        self.is_to_be_kept.load(Ordering::Acquire)
    }

    /// Returns after the command.
    pub(super) async fn until(&self, command: TurnCommand) -> Result<(), CallEnded> {
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

impl PermitSource for TurnSignals {
    fn permit_sending(&self) -> bool {
        // Noted first: a task that sees it too late to keep the turn has ended the term before.
        let was_sent = self.is_sent.swap(true, Ordering::AcqRel);
        let is_valid = self.is_valid();
        if !is_valid && !was_sent {
            self.is_sent.store(false, Ordering::Release);
        }
        is_valid
    }
}

/// The call is over.
pub(super) struct CallEnded;
