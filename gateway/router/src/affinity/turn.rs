//! Turns: one call at a time per session and server, in order of arrival across the fleet.
//!
//! A call requests its turn under its own [ticket](queue_entry) and waits. Most turns are [short](held_turns) and end with
//! their call. A longer one has a [task](keeper), which renews the lease, releases the turn while the call waits for its
//! client, which may have to finish other calls before it answers, and ends it with the call, or shortly after its
//! cancellation. Only tool calls take turns. Invariants: answers, cancellations and progress never wait for a turn, so no
//! call blocks itself; a reply never waits for a turn; every ticket is released, however its call ends; wake-ups only
//! shorten the wait, because a waiting call asks again after a timeout; the turn of a dead holder ends with its lease.
//!
//! After a few calls in a row, the store delegates the turn to this gateway, whose next calls take it from
//! [`delegations`] without a command.
//!
//! A turn excludes others only while its lease lasts: a holder that was frozen or cut off from the store may use it for
//! too long. Calls have a [permit](Turn::permit), which is checked right before they are written; one that was written
//! continues, and the next one may run concurrently. Code sessions fence with the turn's number, which only grows.

mod call_turns;
mod delegated_use;
mod delegation_upkeep;
mod delegations;
mod held_turns;
mod keeper;
mod kept_calls;
mod queue_entry;
mod running_call;
mod shared_routes;
mod signals;
mod ticket_names;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{Principal, ServerName, Token};
use mooring_session::rules::RouteReply;
use mooring_session::time::Millis;
use tokio::time::Instant;

pub(super) use self::delegations::DelegationTable;
pub(super) use self::held_turns::HeldTurns;
use self::held_turns::{TurnOfCall, TurnPlace, TurnTaker};
use self::keeper::FirstRenewal;
use self::keeper::OwnTurn;
use self::queue_entry::QueueEntry;
use self::queue_entry::{LEASE, TurnQueue};
pub(super) use self::shared_routes::FirstRoute;
use self::signals::{TurnCommand, TurnSignals};
use super::{Session, SessionRouter, TurnError};
use mooring_metrics as metrics;
use mooring_protocol::{Kind, Lane, Message, Method};
use mooring_settings::Concurrency;
use mooring_store::{
    EnterReply, EnterRequest, LeaveRequest, LeaveTarget, Line, SessionKey, Store, StoreError,
    TurnScope, fresh_token,
};
use mooring_traces::{Span, SpanKind, TraceScope, in_scope};
use mooring_upstream::{SendPermit, Server};

/// The result of withdrawing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The call was waiting for its turn and has not run. The cancellation need not be forwarded.
    Withdrawn,
    /// As far as known, the call is not waiting: it is at its server, or over. The cancellation has to be forwarded. If
    /// it has a turn, the turn ends after a grace, whether or not its server answers.
    NotWaiting,
}

/// A turn that is held or temporarily released. Dropping it ends the turn in the background.
#[derive(Debug)]
pub struct Turn {
    number: Option<u64>,
    signals: Arc<TurnSignals>,
    /// Where it was put until it needs a task.
    held: Option<(Arc<HeldTurns>, TurnPlace)>,
}

impl Turn {
    /// The turn's number, which fences it from later ones. `None` if it was granted while the store was unreachable,
    /// which orders only the calls of this gateway.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Handles a message of the server on the stream of the call's reply: releases the turn while the call waits for its
    /// client, and resumes it when the call continues.
    pub(crate) fn saw(&self, message: &Message<'_>) {
        match TurnSignal::of(message) {
            TurnSignal::AsksClient => self.release(),
            TurnSignal::Continues => {
                self.signals.hear();
                self.resume();
            }
            TurnSignal::None => {}
        }
    }

    /// Releases the turn while the call waits for its client. Does not block; does nothing if the turn is already
    /// released.
    pub fn release(&self) {
        self.signals.command(TurnCommand::Release);
        if let Some((held, place)) = &self.held {
            held.keep(*place, &self.signals, FirstRenewal::Later);
        }
    }

    /// Requests the turn again, ahead of all waiting calls, because the call continues. Does not block: another call
    /// that has the turn keeps it, but no later call gets it first. Does nothing if the turn was not released, or was
    /// lost.
    pub fn resume(&self) {
        self.signals.command(TurnCommand::Hold);
    }

    /// Whether another call may have the turn although it was not released: its lease expired, its call was cancelled,
    /// the session has ended, or the store counts this gateway as dead. An unreachable store alone loses no turn.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.signals.is_lost()
    }

    /// Returns when the turn [`is_lost`](Self::is_lost); never if it is not.
    pub async fn lost(&self) {
        self.signals.lost().await;
    }

    /// The permit to send the call: for as long as no other call can have the turn.
    #[must_use]
    pub fn permit(&self) -> SendPermit {
        SendPermit::new(Arc::<TurnSignals>::clone(&self.signals))
    }

    /// The turn of this call, which was just granted.
    fn hold(taker: &TurnTaker, turn: TurnOfCall) -> Self {
        let (numbers, term) = match &turn {
            TurnOfCall::Own(own) => (own.numbers, own.entry.term()),
            TurnOfCall::Delegated(used) => used.numbers_and_term(),
        };
        let signals = Arc::clone(taker.call.signals());
        signals.extend(term);
        let held = Arc::clone(&taker.held_turns);
        let place = held.insert(turn, &signals);
        Self {
            // Numbers from the in-memory fallback are not comparable with the store's.
            number: numbers.store,
            signals,
            held: Some((held, place)),
        }
    }

    /// A turn without a task, and whether it is released.
    #[cfg(test)]
    pub(crate) fn watched() -> (Self, impl Fn() -> bool) {
        let signals = Arc::new(TurnSignals::of(None));
        let turn = Self {
            number: None,
            signals: Arc::clone(&signals),
            held: None,
        };
        (turn, move || signals.is(TurnCommand::Release))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_ended = match &self.held {
            Some((held, place)) => held.end(*place, &self.signals),
            None => false,
        };
        if !is_ended {
            self.signals.command(TurnCommand::End);
        }
    }
}

impl SessionRouter {
    /// Waits up to `wait_max` for the session's turn at a server, and takes it. Cancel-safe: a waiting ticket is
    /// released when the future is dropped.
    ///
    /// # Errors
    /// [`TurnError::Busy`] on timeout, with who has the turn; `TooMany` if too many calls wait; `Store` for a session that is
    /// unknown, ended or another principal's, and if the store is unreachable.
    pub async fn take_turn(
        &self,
        key: &SessionKey,
        principal: &Principal,
        server: &ServerName,
        wait_max: Duration,
    ) -> Result<Turn, TurnError> {
        let entry = self.entry(key, principal, server, fresh_token()?, None);
        let taker = TurnTaker::new(None, self.held_turns());
        // Who fences with the number may begin before it asks whether the turn is lost.
        taker.call.signals().note_sent();
        let (turn, _) = entry.take(&taker, wait_max).await?;
        Ok(turn)
    }

    /// Waits up to `wait_max` for the turn that a client's message needs, which any gateway can
    /// [`withdraw`](Self::withdraw) meanwhile. Also returns the route of the session's calls, which saves a ROUTE. `None`
    /// if the message needs no turn. `lane` distinguishes several clients of one session. A call whose server has been silent
    /// for `wait_max` lets the next one run, which limits the wait for a call without any sign of life.
    ///
    /// Concurrent requests with the same id, which MCP forbids, get separate turns.
    ///
    /// # Errors
    /// See [`take_turn`](Self::take_turn), and [`TurnError::Withdrawn`]. The call was not sent.
    pub async fn take_call_turn(
        &self,
        session: &Session,
        server: &Server,
        message: &Message<'_>,
        lane: Option<Lane>,
        wait_max: Duration,
    ) -> Result<Option<(Turn, RouteReply)>, TurnError> {
        let is_call = message.kind() == Kind::Request && message.method() == Method::ToolsCall;
        let Some(id) = message.id().filter(|_| is_call) else {
            return Ok(None);
        };
        if server.concurrency == Concurrency::Parallel {
            return Ok(None);
        }
        let id = turn_id(id.as_json(), lane);
        let taker = TurnTaker::new(Some(id.into()), self.held_turns());
        let started = Instant::now();
        let mut span = Span::begin("wait for turn", SpanKind::Internal);
        let scope = span.scope().or_else(TraceScope::current);
        let taking = self.take_turn_of(&taker, session, &server.id, wait_max);
        let taken = in_scope(scope, taking).await;
        metrics::turn_wait(started.elapsed());
        if taken.is_err() {
            span.fail("turn");
        }
        taken.map(Some)
    }

    /// Removes a call from its queue if the client's message cancels one that waits for its turn, at any gateway, where
    /// it fails with [`TurnError::Withdrawn`]. If the event is lost, or crosses another ENTER of the call, the call may
    /// still run without a caller. A cancelled call that has its turn keeps it for the store's grace.
    pub async fn withdraw(
        &self,
        session: &Session,
        server: &Server,
        message: &Message<'_>,
        lane: Option<Lane>,
    ) -> Withdrawal {
        let Some(id) = message.cancelled_request() else {
            return Withdrawal::NotWaiting;
        };
        if server.concurrency == Concurrency::Parallel {
            return Withdrawal::NotWaiting;
        }
        let leaving = |beginning| LeaveRequest {
            principal: session.principal.clone(),
            server: server.id.clone(),
            who: LeaveTarget::WaitingUnder(beginning),
        };
        let id = turn_id(id, lane);
        let beginnings = ticket_names::beginnings(&session.key, &server.id, &id);
        let Ok([first, resumed]) = beginnings.map(|both| both.map(leaving)) else {
            return Withdrawal::NotWaiting;
        };
        let withdrawn = Box::pin(withdraw(self.store(), &session.key, &first)).await;
        if withdrawn == Withdrawal::NotWaiting {
            // It may have released its turn, and have it again or wait for it. In both cases its server knows the call.
            Box::pin(withdraw(self.store(), &session.key, &resumed)).await;
        }
        withdrawn
    }

    fn entry(
        &self,
        key: &SessionKey,
        principal: &Principal,
        server: &ServerName,
        ticket: Token,
        patience: Option<Duration>,
    ) -> QueueEntry {
        let queue = TurnQueue {
            store: self.store().clone(),
            waiters: self.waiters().clone(),
            beats: Arc::clone(&self.0.beats),
            key: key.clone(),
            patience,
        };
        let request = EnterRequest {
            principal: principal.clone(),
            server: server.clone(),
            worker: self.worker().clone(),
            ticket,
            lease: Millis::from(LEASE),
            line: Line::Last,
            scope: TurnScope::Call,
            held: None,
        };
        QueueEntry::new(queue, request)
    }
}

impl QueueEntry {
    /// Waits up to `wait_max` for the turn of this call.
    async fn take(
        mut self,
        taker: &TurnTaker,
        wait_max: Duration,
    ) -> Result<(Turn, EnterReply), TurnError> {
        let entered = self.wait(Instant::now().checked_add(wait_max)).await?;
        let own = OwnTurn::new(self, &entered);
        Ok((Turn::hold(taker, TurnOfCall::Own(own)), entered))
    }
}

/// The effect of a server's message on the turn of the call on whose stream it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnSignal {
    /// The call waits for its client from now on.
    AsksClient,
    /// The call continues. It may still be waiting for its client: the message does not tell.
    Continues,
    /// No effect.
    None,
}

impl TurnSignal {
    fn of(message: &Message<'_>) -> Self {
        match (message.kind(), message.method()) {
            // Servers ping at intervals, whatever their calls do.
            (Kind::Request, Method::Ping) => Self::None,
            (Kind::Request, _) => Self::AsksClient,
            (Kind::Notification, _) => Self::Continues,
            // The call ends, and its turn ends with its reply.
            (Kind::Result | Kind::Error, _) => Self::None,
        }
    }
}

/// A request's name within its session. Several clients of one session may use the same id.
fn turn_id(id_json: &str, lane: Option<Lane>) -> Cow<'_, str> {
    match lane {
        None => Cow::Borrowed(id_json),
        // JSON ids never have a colon after digits.
        Some(Lane(lane)) => Cow::Owned(format!("{lane}:{id_json}")),
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
