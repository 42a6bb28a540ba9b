//! Turns: one call at a time per session and server, in order of arrival across the fleet.
//!
//! A call requests its turn under its own [ticket](queue_entry) and waits. While it has the turn, a task renews the
//! lease, releases the turn while the call waits for its client, and ends it with the call. Invariants: every ticket is
//! released, however its call ends; wake-ups only shorten the wait, because a waiting call asks again after a timeout;
//! the turn of a dead holder ends with its lease.
//!
//! A turn excludes others only while its lease lasts: a holder that was frozen or cut off from the store may use it for
//! too long. Code sessions therefore fence with the turn's number, which only grows. Calls at upstream servers cannot
//! be fenced: such a call continues, and the next one may run concurrently.

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

/// The result of withdrawing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The call was waiting for its turn and has not run. The server need not be told.
    Withdrawn,
    /// As far as known, the call is not waiting: it is at its server, or over. The cancellation has to be forwarded. If
    /// it has a turn, the turn ends after a grace, whether or not its server answers.
    NotWaiting,
}

/// A turn that is held or temporarily released. Dropping it ends the turn in the background.
#[derive(Debug)]
pub struct Turn {
    number: Option<u64>,
    /// Dropping this ends the turn.
    command: watch::Sender<TurnCommand>,
    state: watch::Receiver<TurnState>,
}

impl Turn {
    /// The turn's number, which fences it from later ones. `None` if it was granted while the store was unreachable,
    /// which orders only the calls of this gateway.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Releases the turn while the call waits for its client. Does not block; does nothing if the turn is already
    /// released.
    pub fn release(&self) {
        self.send_command(TurnCommand::Release);
    }

    /// Requests the turn again, ahead of all waiting calls, because the call continues. Does not block: another call
    /// that has the turn keeps it, but no later call gets it first. Does nothing if the turn was not released, or was
    /// lost.
    pub fn resume(&self) {
        self.send_command(TurnCommand::Hold);
    }

    /// Whether another call may have the turn although it was not released: its lease expired, its call was cancelled,
    /// the session has ended, or the store counts this gateway as dead. An unreachable store alone loses no turn.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.state.borrow() == TurnState::Lost
    }

    /// Returns when the turn [`is_lost`](Self::is_lost); never if it is not.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        let lost = state.wait_for(|state| *state == TurnState::Lost);
        if lost.await.is_err() {
            // The task was dropped: the process is stopping.
            std::future::pending::<()>().await;
        }
    }

    /// A turn granted to this entry, with the task that keeps it.
    fn held(entry: QueueEntry, numbers: TurnNumbers) -> Self {
        let (command, commands) = watch::channel(TurnCommand::Hold);
        let (state_sender, state) = watch::channel(TurnState::Held);
        tokio::spawn(keeper::keep(entry, numbers, commands, state_sender));
        Self {
            // Numbers from the in-memory fallback are not comparable with the store's.
            number: numbers.store,
            command,
            state,
        }
    }

    /// A turn without a task, and whether it is released.
    #[cfg(test)]
    pub(crate) fn watched() -> (Self, impl Fn() -> bool) {
        let (command, commands) = watch::channel(TurnCommand::Hold);
        let (_, state) = watch::channel(TurnState::Held);
        let turn = Self {
            number: None,
            command,
            state,
        };
        (turn, move || *commands.borrow() == TurnCommand::Release)
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
    /// Waits up to `wait_max` for the session's turn at a server, and takes it. Cancel-safe: a waiting ticket is
    /// released when the future is dropped.
    ///
    /// # Errors
    /// [`TurnError::Busy`] on timeout; `TooMany` if too many calls wait; `Store` for a session that is unknown, ended
    /// or another principal's, and if the store is unreachable.
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

    /// The same for a client's request, which any gateway can [`withdraw`](Self::withdraw) while it waits. Also returns
    /// the route that the store sends with the turn, which saves a ROUTE.
    ///
    /// Concurrent requests with the same id, which MCP forbids, get separate turns.
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

    /// Cancels a client's request: removes it from the queue if it waits for its turn, at any gateway, where it fails
    /// with [`TurnError::Withdrawn`]. If the event is lost, or crosses another ENTER of the call, the call may still
    /// run without a caller. A request that has its turn keeps it for the store's grace.
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
            // It may have released its turn, and have it again or wait for it. In both cases its server knows the call.
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
    /// Waits up to `wait_max` for the turn, and starts the task that keeps it.
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
            tracing::info!(session = %key.digest(), %error, "failed to withdraw a call");
            Withdrawal::NotWaiting
        }
    }
}

#[cfg(test)]
mod tests;
