//! A turn: one call at a time of one session at one server, in the order of arrival over the whole fleet.
//!
//! A call asks the store for its turn under its own [ticket](queue_entry), and waits. A held turn has a task: it renews
//! the lease of a long call, releases the turn while the call waits for its client, and gives it back at the end.
//! Invariants: every ticket is given back, however its call ends; wake-ups only shorten the wait, because a waiting call
//! asks again after a timeout; the turn of a dead holder is released by its lease.
//!
//! A turn excludes others while its lease holds, and no longer: a holder that was frozen, or cut off from the store, may
//! believe in it for too long. Who can fences with its number, which only grows, as code sessions do. A call at an
//! upstream server cannot be fenced: it goes on, and the next one may run beside it.

mod keeper;
mod queue_entry;
mod ticket_names;

use std::time::Duration;

use mooring_session::names::{Principal, ServerName, Token};
use mooring_session::rules::RouteReply;
use mooring_session::time::Millis;
use tokio::sync::watch;
use tokio::time::Instant;

use self::keeper::{TurnCommand, TurnNumbers, TurnState};
use self::queue_entry::{LEASE, QueueEntry, TurnQueue};
use super::{Session, SessionRouter, TurnError};
use mooring_store::{
    EnterReply, EnterRequest, LeaveRequest, LeaveTarget, Line, SessionKey, Store, StoreError,
    fresh_token,
};

/// What became of a call that is wanted no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It waited for its turn, and waits no more: nothing of it was done, and nobody else need be told.
    Withdrawn,
    /// It does not wait, as far as can be told: it is at its server, or over. Whoever has it has to be told. A turn that it
    /// has ends after a grace, whether its server answers it or not.
    NotWaiting,
}

/// A turn that is held, or released for a while. Dropping it gives everything back, without waiting for that.
#[derive(Debug)]
pub struct Turn {
    number: Option<u64>,
    /// While this stands, the turn is wanted.
    command: watch::Sender<TurnCommand>,
    standing: watch::Receiver<TurnState>,
}

impl Turn {
    /// The turn's number, which fences it from all that come later; none where it was given while the store was away, and
    /// keeps only the calls of this worker in order.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Lets the next call have the turn, because this one waits for its client. Waits for nothing; where the turn is
    /// released already, nothing happens.
    pub fn release(&self) {
        self.send_command(TurnCommand::Release);
    }

    /// Asks for the turn again, before everybody who waits, because the call goes on. Waits for nothing: another call may
    /// have the turn by now, and keeps it, but no later one begins. Where the turn was not released, or was lost, nothing
    /// happens.
    pub fn resume(&self) {
        self.send_command(TurnCommand::Hold);
    }

    /// Whether another may have the turn by now, though it was not released: its lease lapsed, its call was cancelled, the
    /// session is over, or the store counts this worker as dead. That the store is away takes no turn.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.standing.borrow() == TurnState::Lost
    }

    /// Returns when the turn [`is_lost`](Self::is_lost), and never where that does not happen.
    pub async fn lost(&self) {
        let mut standing = self.standing.clone();
        let lost = standing.wait_for(|standing| *standing == TurnState::Lost);
        if lost.await.is_err() {
            // The task has ended without a word: the process stops.
            std::future::pending::<()>().await;
        }
    }

    /// A turn that was given to the ticket at this place, and the task that keeps it.
    fn held(entry: QueueEntry, numbers: TurnNumbers) -> Self {
        let (command, wished) = watch::channel(TurnCommand::Hold);
        let (stands, standing) = watch::channel(TurnState::Held);
        tokio::spawn(keeper::keep(entry, numbers, wished, stands));
        Self {
            // Numbers of memory's making are not of the row that the fleet's turns have.
            number: numbers.store,
            command,
            standing,
        }
    }

    /// A turn without a task, and whether it is released.
    #[cfg(test)]
    pub(crate) fn watched() -> (Self, impl Fn() -> bool) {
        let (command, wished) = watch::channel(TurnCommand::Hold);
        let (_, standing) = watch::channel(TurnState::Held);
        let turn = Self {
            number: None,
            command,
            standing,
        };
        (turn, move || *wished.borrow() == TurnCommand::Release)
    }

    fn send_command(&self, new: TurnCommand) {
        self.command.send_if_modified(|command| {
            let is_new = *command != new;
            *command = new;
            is_new
        });
    }
}

impl SessionRouter {
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
        let entry = self.entry(key, principal, server, fresh_token()?);
        let (turn, _) = entry.take(wait_max).await?;
        Ok(turn)
    }

    /// The same for a client's request, which any worker can [`withdraw`](Self::withdraw) while it waits. Answers also
    /// where the session's calls go, as the store said when it gave the turn: it takes the place of a ROUTE.
    ///
    /// Requests of one id that are under way at the same time, which no client may send, have a turn each.
    ///
    /// # Errors
    /// See [`take_turn`](Self::take_turn), and [`TurnError::Withdrawn`].
    pub async fn take_turn_routed(
        &self,
        session: &Session,
        server: &ServerName,
        request_id_json: &str,
        wait_max: Duration,
    ) -> Result<(Turn, RouteReply), TurnError> {
        let (key, principal) = (&session.key, &session.principal);
        let ticket = ticket_names::ticket(key, server, request_id_json)?;
        let entry = self.entry(key, principal, server, ticket);
        let (turn, entered) = entry.take(wait_max).await?;
        Ok((turn, entered.routed))
    }

    /// A client's request is wanted no more: takes it out of the queue if it waits for its turn, at whichever worker.
    /// That one ends it with [`TurnError::Withdrawn`]; only where the news of it is lost, or just then asked again for
    /// the turn, the call is made for nobody. A request that has its turn keeps it for the store's grace.
    pub async fn withdraw(
        &self,
        session: &Session,
        server: &ServerName,
        request_id_json: &str,
    ) -> Withdrawal {
        let leaving = |beginning| LeaveRequest {
            principal: session.principal.clone(),
            server: server.clone(),
            who: LeaveTarget::WaitingUnder(beginning),
        };
        let beginnings = ticket_names::beginnings(&session.key, server, request_id_json);
        let Ok([first, resumed]) = beginnings.map(|both| both.map(leaving)) else {
            return Withdrawal::NotWaiting;
        };
        let withdrawn = withdraw(self.store(), &session.key, &first).await;
        if withdrawn == Withdrawal::NotWaiting {
            // It may have passed its turn on, and have or await it again. Its server knows of it, either way.
            withdraw(self.store(), &session.key, &resumed).await;
        }
        withdrawn
    }

    fn entry(
        &self,
        key: &SessionKey,
        principal: &Principal,
        server: &ServerName,
        ticket: Token,
    ) -> QueueEntry {
        let queue = TurnQueue {
            store: self.store().clone(),
            waiters: self.waiters().clone(),
            key: key.clone(),
        };
        let request = EnterRequest {
            principal: principal.clone(),
            server: server.clone(),
            worker: self.worker().clone(),
            ticket,
            lease: Millis::from(LEASE),
            line: Line::Last,
            held: None,
        };
        QueueEntry::new(queue, request)
    }
}

impl QueueEntry {
    /// Waits for the turn, for `wait_max` at most, and begins to keep it.
    async fn take(mut self, wait_max: Duration) -> Result<(Turn, EnterReply), TurnError> {
        let entered = self.wait(Instant::now().checked_add(wait_max)).await?;
        let turn = Turn::held(self, TurnNumbers::of(&entered));
        Ok((turn, entered))
    }
}

async fn withdraw(store: &Store, key: &SessionKey, request: &LeaveRequest) -> Withdrawal {
    match store.leave(key, request).await {
        Ok(()) => Withdrawal::Withdrawn,
        Err(StoreError::Refused(_)) => Withdrawal::NotWaiting,
        Err(error) => {
            tracing::info!(session = %key.digest(), %error, "a call was not looked for among those that wait");
            Withdrawal::NotWaiting
        }
    }
}

#[cfg(test)]
mod tests;
