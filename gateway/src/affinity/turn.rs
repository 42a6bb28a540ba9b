//! A turn: one call at a time of one session at one server, in the order of arrival over the whole fleet.
//!
//! One task per ticket asks for the turn, renews it while it is held, and passes it on when nobody here wants it any more:
//! its caller has dropped the [`Turn`], or has gone while it waited. Invariants: a ticket that was asked for is given
//! back, however its caller goes; news only makes waiting shorter, because whoever waits asks again by itself; a turn
//! whose holder dies passes on by its lease.
//!
//! A turn excludes others while its lease holds, and no longer: a holder that was frozen, or cut off from the store, may
//! believe in it for too long. Who needs more fences with its number, which only grows.

use std::time::Duration;

use mooring_session::Refusal;
use mooring_session::names::{NameError, Principal, ServerName, Token, WorkerId};
use mooring_session::time::Millis;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::Affinity;
use super::news::Waiters;
use crate::store::{AnsweredBy, Enter, Entered, Leave, Line, SessionKey, Store, StoreError};

/// How long a turn outlives its holder. Shorter than the store's longest lease, 5 s unless its settings say otherwise.
const LEASE: Duration = Duration::from_secs(3);
/// How often a holder renews: an attempt may fail before the lease lapses.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long one who waits relies on news. A grant passes on after a second without a word of its ticket, so news that was
/// lost costs no turn.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Attempts to give a ticket back, and the pause between two. What stays in the queue after that lapses with its lease.
const LEAVE_ATTEMPTS: u32 = 3;
/// See [`LEAVE_ATTEMPTS`].
const LEAVE_PAUSE: Duration = Duration::from_millis(200);

const _: () = assert!(RENEW_EVERY.as_millis() * 3 <= LEASE.as_millis());

/// Why there is no turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// Others had it for as long as the caller would wait.
    #[error("the session's turn did not come in time")]
    Busy,
    /// As many wait for it as may.
    #[error("too many calls wait for the session's turn")]
    TooMany,
    /// The store refused, or could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name of the gateway's own making was refused, which would be a defect.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The task that asked for it is gone: the process stops.
    #[error("the worker stops")]
    Stopped,
}

/// A turn that is held. Dropping it passes it on, without waiting for that.
#[derive(Debug)]
pub struct Turn {
    number: Option<u64>,
    /// While this stands, the ticket is wanted.
    state: watch::Receiver<State>,
}

/// Where a ticket stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Held { number: Option<u64> },
    Lost,
    Failed(TurnError),
}

impl Turn {
    /// The turn's number, which fences it from all that come later; none where it was given while the store was away, and
    /// keeps only the calls of this worker in order.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Whether another may have the turn by now: its lease lapsed, the session is over, or the store counts this worker
    /// as dead. That the store is away takes no turn.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.state.borrow() == State::Lost
    }

    /// Returns when the turn [`is_lost`](Self::is_lost), and never where that does not happen.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| *state == State::Lost).await.is_err() {
            // The task has ended without a word: the process stops.
            std::future::pending::<()>().await;
        }
    }
}

impl Affinity {
    /// Waits for the session's turn at a server, for `wait_max` at most, and takes it. The future may be dropped at any
    /// moment: a ticket that waits is given back.
    ///
    /// # Errors
    /// [`TurnError::Busy`] where it did not come in time; `TooMany` where too many wait; `Store` for a session that is
    /// unknown, over or another principal's, and where the store cannot be asked.
    pub async fn take_turn(
        &self,
        key: &SessionKey,
        principal: &Principal,
        server: &ServerName,
        wait_max: Duration,
    ) -> Result<Turn, TurnError> {
        let ticket = Ticket {
            store: self.store().clone(),
            worker: self.worker().clone(),
            waiters: self.waiters().clone(),
            key: key.clone(),
            principal: principal.clone(),
            server: server.clone(),
            token: self.attempt()?,
        };
        ticket.take(wait_max).await
    }
}

/// One call's place in the queue.
#[derive(Debug)]
struct Ticket {
    store: Store,
    worker: WorkerId,
    waiters: Waiters,
    key: SessionKey,
    principal: Principal,
    server: ServerName,
    token: Token,
}

impl Ticket {
    async fn take(self, wait_max: Duration) -> Result<Turn, TurnError> {
        let (sender, mut state) = watch::channel(State::Waiting);
        let gives_up_at = Instant::now() + wait_max;
        tokio::spawn(self.see_to(sender, gives_up_at));
        let settled = state.wait_for(|state| *state != State::Waiting).await;
        let settled = settled.map(|state| state.clone());
        match settled {
            Ok(State::Held { number }) => Ok(Turn { number, state }),
            // A turn that is lost at once is told like one that is lost later.
            Ok(State::Lost) => Ok(Turn {
                number: None,
                state,
            }),
            Ok(State::Failed(error)) => Err(error),
            Ok(State::Waiting) | Err(_) => Err(TurnError::Stopped),
        }
    }

    /// What the ticket's task does, until nobody listens or nothing is left to do.
    async fn see_to(self, state: watch::Sender<State>, gives_up_at: Instant) {
        let number = tokio::select! {
            biased;
            () = state.closed() => {
                self.leave().await;
                return;
            }
            given = self.wait(gives_up_at) => match given {
                Ok(number) => number,
                Err(error) => {
                    // The caller need not wait until the queue is told.
                    state.send_replace(State::Failed(error));
                    self.leave().await;
                    return;
                }
            },
        };
        state.send_replace(State::Held { number });
        tokio::select! {
            biased;
            () = state.closed() => {}
            () = self.keep(number) => {
                state.send_replace(State::Lost);
            }
        }
        self.leave().await;
    }

    /// Waits in the queue until the turn comes.
    async fn wait(&self, gives_up_at: Instant) -> Result<Option<u64>, TurnError> {
        let mut is_in_line = false;
        // Joined before the first question, so that no news is missed.
        let mut turn = self.waiters.join_turn(&self.token);
        let mut settled = self.waiters.join(&self.key, &self.server);
        loop {
            match self.ask(None).await {
                Ok(entered) if entered.turn.is_some() => return Ok(number_of(&entered)),
                Ok(_) => is_in_line = true,
                Err(StoreError::Refused(Refusal::Limit { .. })) => return Err(TurnError::TooMany),
                // The place in the queue outlasts a moment in which the store cannot be asked.
                Err(StoreError::Away(_) | StoreError::NotReady(_)) if is_in_line => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= gives_up_at {
                return Err(TurnError::Busy);
            }
            let asks_again_at = gives_up_at.min(Instant::now() + ASK_AGAIN_AFTER);
            let told = async {
                tokio::select! {
                    () = turn.woken(ASK_AGAIN_AFTER) => {}
                    () = settled.woken(ASK_AGAIN_AFTER) => {}
                }
            };
            // Either way the store is asked.
            let _ = timeout_at(asks_again_at, told).await;
        }
    }

    /// Renews the turn; returns when it is lost.
    async fn keep(&self, number: Option<u64>) {
        loop {
            sleep(RENEW_EVERY).await;
            let was_degraded = self.store.is_degraded();
            let answer = self.ask(number).await;
            // What memory says of the turns of this worker says nothing of a turn that the store gave.
            let is_of_memory = was_degraded || self.store.is_degraded();
            let is_taken = match answer {
                Ok(entered) => entered.answered_by == AnsweredBy::Store && entered.turn != number,
                Err(StoreError::Refused(_)) => true,
                Err(_) => false,
            };
            if is_taken && !is_of_memory && number.is_some() {
                return;
            }
        }
    }

    async fn ask(&self, held: Option<u64>) -> Result<Entered, StoreError> {
        let request = Enter {
            principal: self.principal.clone(),
            server: self.server.clone(),
            worker: self.worker.clone(),
            ticket: self.token.clone(),
            lease: Millis::new(u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX)),
            line: Line::Last,
            held,
        };
        self.store.enter(&self.key, &request).await
    }

    /// Gives the ticket back. A refusal says that there is nothing to give back any more.
    async fn leave(&self) {
        let request = Leave {
            principal: self.principal.clone(),
            server: self.server.clone(),
            ticket: self.token.clone(),
        };
        for _ in 0..LEAVE_ATTEMPTS {
            match self.store.leave(&self.key, &request).await {
                Ok(()) | Err(StoreError::Refused(_)) => return,
                Err(error) => {
                    tracing::debug!(session = %self.key.digest(), %error, "a turn could not be passed on");
                    sleep(LEAVE_PAUSE).await;
                }
            }
        }
    }
}

/// Numbers of memory's making are not of the row that the fleet's turns have.
fn number_of(entered: &Entered) -> Option<u64> {
    entered
        .turn
        .filter(|_| entered.answered_by == AnsweredBy::Store)
}

#[cfg(test)]
mod tests;
