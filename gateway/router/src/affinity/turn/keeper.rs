//! The task of a turn: it holds, releases and resumes it as its call commands, and gives it back at the end.
//!
//! Nothing is asked of the store in the first [`RENEW_EVERY`] of a turn. Invariants: the call never waits for this task, the
//! task ends with the call, and a turn that was lost is not asked for again: its call may have been cancelled, and would
//! hold up the others for as long as its server says nothing.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::TurnError;
use super::queue_entry::{ASK_AGAIN_AFTER, LEASE, QueueEntry};
use mooring_store::{AnsweredBy, EnterReply, StoreError};

/// How often a holder renews: an attempt may fail before the lease lapses.
pub(super) const RENEW_EVERY: Duration = Duration::from_millis(600);

const _: () = assert!(RENEW_EVERY.as_millis() * 3 <= LEASE.as_millis());

/// What the call wants of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnCommand {
    /// To have it.
    Hold,
    /// That others have it meanwhile.
    Release,
}

/// Whether the turn is still what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnState {
    /// No other call has it, unless it was released.
    Held,
    /// Another may have it by now.
    Lost,
}

/// Where the task learns what the call wants.
type TurnCommands = watch::Receiver<TurnCommand>;

/// The call is over, and nothing is wanted any more.
struct CallEnded;

/// The numbers under which a ticket has its turn. The store and the memory that stands in for it number separately.
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

    /// Notes the answer to a renewal. Answers whether it says that the turn was lost.
    fn update(&mut self, entered: &EnterReply) -> bool {
        let number = match entered.answered_by {
            AnsweredBy::Store => {
                // What memory knows is of one outage.
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

/// Keeps the turn that the ticket at `entry` has under these numbers, until the call is over.
pub(super) async fn keep(
    mut entry: QueueEntry,
    numbers: TurnNumbers,
    mut commands: TurnCommands,
    standing: watch::Sender<TurnState>,
) {
    let mut given = TurnGrant::Already(numbers);
    loop {
        let commanded = tokio::select! {
            biased;
            commanded = until(&mut commands, TurnCommand::Release) => commanded,
            () = hold(&mut entry, given) => {
                standing.send_replace(TurnState::Lost);
                return entry.leave().await;
            }
        };
        entry.leave().await;
        if commanded.is_err() || until(&mut commands, TurnCommand::Hold).await.is_err() {
            return;
        }
        let Ok(next) = entry.again() else {
            return;
        };
        entry = next;
        given = TurnGrant::NotYet;
    }
}

/// How the turn comes to the ticket.
#[derive(Clone, Copy)]
enum TurnGrant {
    /// It has it, under these numbers.
    Already(TurnNumbers),
    /// It has to ask for it.
    NotYet,
}

/// Returns when the turn is lost, or cannot be had any more.
async fn hold(entry: &mut QueueEntry, given: TurnGrant) {
    let numbers = match given {
        TurnGrant::Already(numbers) => numbers,
        TurnGrant::NotYet => match line_up(entry).await {
            Ok(entered) => TurnNumbers::of(&entered),
            Err(error) => {
                tracing::debug!(%error, "a call continues without its turn");
                return;
            }
        },
    };
    renew(entry, numbers).await;
}

/// Waits for the turn for as long as it takes, also where it cannot be asked for at present.
async fn line_up(entry: &mut QueueEntry) -> Result<EnterReply, TurnError> {
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
async fn renew(entry: &mut QueueEntry, mut numbers: TurnNumbers) {
    loop {
        sleep(RENEW_EVERY).await;
        let was_degraded = entry.store().is_degraded();
        let is_lost = match entry.ask(numbers.store).await {
            Ok(entered) => numbers.update(&entered),
            // What memory refuses says nothing of a turn that the store gave.
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

async fn until(commands: &mut TurnCommands, command: TurnCommand) -> Result<(), CallEnded> {
    let commanded = commands.wait_for(|commanded| *commanded == command).await;
    commanded.map(drop).map_err(|_| CallEnded)
}
