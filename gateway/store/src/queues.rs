//! Turns and events among the callers of one process: the counterpart of the module's queues for stores without Redis.
//!
//! The rules are the same ([`Turns`], [`EventMailboxes`]); this file gives them a lock, a clock, and a notification for waiting
//! callers. Invariants: nothing waits while the lock is held; an event is removed only when it is returned, so that a
//! dropped caller loses none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mooring_session::SessionPlace;
use mooring_session::StepProgress;
use mooring_session::context::Liveness;
use mooring_session::events::{EventMailboxes, MailboxEvent};
use mooring_session::limits::EVENTS_BATCH_MAX;
use mooring_session::names::{ServerName, WorkerId};
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Monotonic};
use mooring_session::turns::{QueueView, TurnContext, TurnLimits, Turns};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::blockers::TurnQueueView;
use crate::clock::Clock;
use crate::events::WorkerEvent;
use crate::key::SessionKey;
use crate::lock::lock;
use crate::transition::{ClaimWaiter, SettledScope};
use crate::turns::{EnterRequest, LeaveRequest, LeaveTarget, QueueReply};

/// The module's defaults.
const LIMITS: TurnLimits = TurnLimits {
    queue_max: 256,
    lease_max: Millis::new(5_000),
};
/// Most queues advanced in one step.
const STEP_MAX: usize = 256;
/// How often due work is checked for while callers wait: a worker's death has no deadline of its own to wait for.
const TICK: Duration = Duration::from_millis(100);

/// The turns and events of one process.
#[derive(Debug)]
pub(super) struct Queues {
    state: Mutex<State>,
    bell: Notify,
    clock: Clock,
    prefix: Arc<str>,
}

#[derive(Debug)]
struct State {
    turns: Turns,
    events: EventMailboxes,
    /// When the next waiting caller looks for due work again; none if there is no such caller.
    looks_at: Option<Monotonic>,
}

impl State {
    fn next_deadline(&self) -> Option<Monotonic> {
        let due = [self.turns.next_deadline(), self.events.next_deadline()];
        due.into_iter().flatten().min()
    }
}

impl Queues {
    /// For a process that starts: no turn of an earlier one is still held.
    pub(super) fn new(clock: Clock, prefix: &str) -> Self {
        Self {
            state: Mutex::new(State {
                turns: Turns::new(clock.mono(), Millis::new(0)),
                events: EventMailboxes::new(),
                looks_at: None,
            }),
            bell: Notify::new(),
            clock,
            prefix: prefix.into(),
        }
    }

    /// Enters the queue for a turn.
    pub(crate) fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
        workers: &dyn Liveness,
    ) -> Result<QueueReply, Refusal> {
        let (place, server) = (place(key), &request.server);
        self.with(workers, |turns, context| {
            let status = turns.enter(&place, server, &request.turn(), context)?;
            let holder = || turns.holder_of(&place, server, context.mono);
            Ok(QueueReply::of(request, status, holder))
        })
    }

    /// Releases a turn, which goes to the next caller.
    pub(crate) fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
        workers: &dyn Liveness,
    ) -> Result<(), Refusal> {
        let (place, server) = (place(key), &request.server);
        self.with(workers, |turns, context| match &request.who {
            LeaveTarget::Ticket(ticket) => turns.leave(&place, server, ticket, context),
            LeaveTarget::WaitingUnder(beginning) => {
                turns.withdraw(&place, server, beginning, context).map(drop)
            }
        })
    }

    /// The turns of this session.
    pub(super) fn views(&self, key: &SessionKey) -> Vec<TurnQueueView> {
        let mono = self.clock.mono();
        let queues = lock(&self.state).turns.of_session(&place(key), mono);
        queues.iter().map(TurnQueueView::of).collect()
    }

    /// Whether the turn of this session is taken, at `server` or at any.
    pub(super) fn holds(&self, key: &SessionKey, server: Option<&ServerName>) -> bool {
        let mono = self.clock.mono();
        lock(&self.state).turns.holds(&place(key), server, mono)
    }

    /// The queues of this session.
    pub(super) fn of_session(&self, key: &SessionKey) -> Vec<QueueView> {
        let mono = self.clock.mono();
        lock(&self.state).turns.of_session(&place(key), mono)
    }

    /// Notes a claim in a reply, and wakes callers that are waiting for it.
    pub(super) fn note(
        &self,
        key: &SessionKey,
        told: Option<ClaimWaiter<'_>>,
        settles: SettledScope<'_>,
    ) {
        if told.is_none() && settles == SettledScope::Nothing {
            return;
        }
        let place = place(key);
        let mut state = lock(&self.state);
        let due = state.next_deadline();
        if let Some(ClaimWaiter {
            worker,
            server,
            lapses_at,
        }) = told
        {
            let rest_ms = lapses_at
                .unix_ms()
                .saturating_sub(self.clock.now().unix_ms());
            let until = self.clock.mono().plus(Millis::new(rest_ms));
            state.events.watch(worker, &place, server, until);
        }
        match settles {
            SettledScope::Nothing => {}
            SettledScope::Server(server) => state.events.settle(&place, server),
            SettledScope::Session => {
                state.events.settle_session(&place);
                state.turns.drop_session(&place);
            }
        }
        self.ring_for(&mut state, due);
    }

    /// Notifies the worker of changes of this binding for so long. Returns whether there is room for that.
    pub(super) fn watch(
        &self,
        key: &SessionKey,
        server: &ServerName,
        worker: &WorkerId,
        lasting: Millis,
    ) -> bool {
        let mut state = lock(&self.state);
        let due = state.next_deadline();
        let until = self.clock.mono().plus(lasting);
        let is_watched = (state.events).watch_delegation(worker, &place(key), server, until);
        self.ring_for(&mut state, due);
        is_watched
    }

    /// Ends all turns, because another store assigns them from now on. Waiting callers have to enter again.
    pub(super) fn dissolve(&self, workers: &dyn Liveness) {
        let mono = self.clock.mono();
        lock(&self.state).turns.restart(mono, Millis::new(0));
        while self.advance(workers) == StepProgress::More {}
    }

    /// Whether there are events for the worker.
    pub(super) fn has(&self, worker: &WorkerId) -> bool {
        lock(&self.state).events.has(worker)
    }

    /// Does the work that is due, or a part of it.
    pub(super) fn advance(&self, workers: &dyn Liveness) -> StepProgress {
        let mono = self.clock.mono();
        self.with(workers, |turns, context| {
            let advanced = turns.advance(context, STEP_MAX);
            match context.events.advance(mono, workers, STEP_MAX) {
                StepProgress::Done => advanced,
                StepProgress::More => StepProgress::More,
            }
        })
    }

    /// Waits for events of a worker, for `timeout` at most; `step` has to [`advance`](Self::advance) the queues.
    pub(super) async fn wait<F: Future<Output = ()>>(
        &self,
        worker: &WorkerId,
        timeout: Duration,
        step: impl Fn() -> F,
    ) -> Vec<WorkerEvent> {
        let deadline = Instant::now() + timeout;
        let _look = PlannedLook(self);
        loop {
            let rung = self.bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            step().await;
            let items = self.take(worker);
            if !items.is_empty() || Instant::now() >= deadline {
                return items;
            }
            tokio::select! {
                () = rung => {}
                () = sleep_until(self.plan_look(deadline)) => {}
            }
        }
    }

    /// Takes the worker's events. Grants that have become invalid are dropped.
    fn take(&self, worker: &WorkerId) -> Vec<WorkerEvent> {
        let mono = self.clock.mono();
        let State { turns, events, .. } = &mut *lock(&self.state);
        events
            .take(worker, EVENTS_BATCH_MAX, |_| true)
            .into_iter()
            .filter_map(|item| self.to_event(item, turns, mono))
            .collect()
    }

    fn to_event(
        &self,
        item: MailboxEvent,
        turns: &mut Turns,
        mono: Monotonic,
    ) -> Option<WorkerEvent> {
        match item {
            MailboxEvent::Turn {
                session,
                server,
                ticket,
                turn,
            } => {
                let is_true = turns.pick_up(&session, &server, &ticket, turn, mono);
                let key = SessionKey::named(&self.prefix, &session.key)?;
                is_true.then_some(WorkerEvent::Turn {
                    key,
                    server,
                    ticket,
                    turn,
                })
            }
            MailboxEvent::Withdrawn {
                session,
                server,
                ticket,
            } => {
                let key = SessionKey::named(&self.prefix, &session.key)?;
                Some(WorkerEvent::Withdrawn {
                    key,
                    server,
                    ticket,
                })
            }
            MailboxEvent::Settled { session, server } => {
                let key = SessionKey::named(&self.prefix, &session.key)?;
                Some(WorkerEvent::Settled { key, server })
            }
        }
    }

    /// When to look for due work again, at `deadline` at the latest.
    fn plan_look(&self, deadline: Instant) -> Instant {
        let (now, mono) = (Instant::now(), self.clock.mono());
        let mut state = lock(&self.state);
        let look = match state.next_deadline() {
            None => deadline,
            Some(due) => {
                let rest = Duration::from_millis(due.ms().saturating_sub(mono.ms()));
                deadline.min(now + rest.clamp(Duration::from_millis(1), TICK))
            }
        };
        let wait_ms = u64::try_from(look.duration_since(now).as_millis()).unwrap_or(u64::MAX);
        state.looks_at = Some(mono.plus(Millis::new(wait_ms)));
        look
    }

    fn with<R>(
        &self,
        workers: &dyn Liveness,
        work: impl FnOnce(&mut Turns, &mut TurnContext<'_>) -> R,
    ) -> R {
        let (now, mono) = (self.clock.now(), self.clock.mono());
        let mut state = lock(&self.state);
        let due = state.next_deadline();
        let State { turns, events, .. } = &mut *state;
        let mut context = TurnContext {
            now,
            mono,
            limits: LIMITS,
            workers,
            events,
        };
        let result = work(turns, &mut context);
        self.ring_for(&mut state, due);
        result
    }

    /// Wakes waiting callers if there are events for any of them, or if work becomes due before any of them looks for
    /// it. A turn that is entered and left between two looks wakes no caller.
    fn ring_for(&self, state: &mut State, due_before: Option<Monotonic>) {
        let mut has_events = false;
        while state.events.pop_fresh().is_some() {
            has_events = true;
        }
        let is_sooner = match (state.next_deadline(), due_before) {
            (Some(due), Some(before)) => due < before,
            (due, _) => due.is_some(),
        };
        let is_unseen = match (state.next_deadline(), state.looks_at) {
            (Some(due), Some(look)) => due < look,
            _ => true,
        };
        if has_events || is_sooner && is_unseen {
            self.bell.notify_waiters();
        }
    }
}

/// A waiting caller that looks for due work at the time in the state.
struct PlannedLook<'a>(&'a Queues);

impl Drop for PlannedLook<'_> {
    /// Others who wait relied on this look, and plan their own.
    fn drop(&mut self) {
        lock(&self.0.state).looks_at = None;
        self.0.bell.notify_waiters();
    }
}

/// All sessions are in one database.
fn place(key: &SessionKey) -> SessionPlace {
    SessionPlace::new(0, key.secret().as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::pin::pin;

    use futures_util::FutureExt;
    use mooring_session::workers::Workers;

    use super::*;
    use crate::clock::ManualClock;
    use crate::test_support::enter;
    use crate::test_support::requests as make;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_stops_waiting_leaves_no_other_asleep() {
        let time = ManualClock::starting_at(1_700_000_000_000);
        let queues = Queues::new(Clock::Manual(Arc::clone(&time)), make::PREFIX);
        let workers = Workers::new(Monotonic::default(), Millis::new(u64::MAX));
        let alive = workers.at(Monotonic::default());
        let step = || {
            queues.advance(&alive);
            std::future::ready(())
        };
        let (worker, other) = (make::worker("w:1"), make::worker("v:1"));
        let mut waiting = pin!(queues.wait(&worker, Duration::from_secs(60), step));
        assert!(waiting.as_mut().now_or_never().is_none());
        let mut looks_sooner = Box::pin(queues.wait(&other, Duration::from_secs(1), step));
        assert!(looks_sooner.as_mut().now_or_never().is_none());

        let key = make::key("s");
        let turn = |ticket| queues.enter(&key, &enter("w:1", ticket), &alive);
        assert!(turn("t1").unwrap().turn.is_some());
        assert_eq!(turn("t2").unwrap().turn, None);
        drop(looks_sooner);
        let lease = enter("w:1", "t1").lease;
        time.pass(lease.get());
        tokio::time::advance(Duration::from_millis(lease.get())).await;
        let events = waiting.now_or_never().unwrap();
        assert!(
            matches!(&events[..], [WorkerEvent::Turn { ticket, .. }] if *ticket == make::token("t2")),
            "{events:?}"
        );
    }
}
