//! Wake-ups: the calls that wait here for another gateway's claim or for a turn, and the streams that wait for a binding.
//! [`events`](super::events) has the task that wakes them.
//!
//! Invariant: correctness does not depend on wake-ups. A call that is woken asks the store again; without a wake-up it
//! asks again after a timeout.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use mooring_session::names::{ServerName, Token};
use tokio::sync::watch;

use mooring_metrics as metrics;
use mooring_store::{SessionKey, WorkerEvent};

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WaitKey {
    /// The outcome of a claim or turn of a session at a server.
    Settled(SessionKey, ServerName),
    /// The ticket's turn.
    Turn(Token),
}

/// The latest wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    /// Ask the store again.
    Ask,
    /// The call was withdrawn. Final: later wake-ups do not replace it.
    Withdrawn,
}

/// The calls that wait for the same.
#[derive(Debug)]
struct WaitingGroup {
    /// How many there are. Receivers of the channel are no count: one outlives its lock.
    calls: usize,
    wake_ups: watch::Sender<WakeReason>,
}

type WaitingCalls = HashMap<WaitKey, WaitingGroup, RandomState>;

/// The waiting calls of this gateway. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<WaitingCalls>,
    receives_events: AtomicBool,
    /// How many outcomes the store has reported.
    outcomes: AtomicU64,
}

/// One wait. Ends when dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    waiters: Waiters,
    key: WaitKey,
    wake_ups: watch::Receiver<WakeReason>,
}

impl Waiters {
    /// Waits for the outcome of a claim of this session at this server. Every later event wakes the waiter, even one
    /// before its first await.
    pub(super) fn join(&self, key: &SessionKey, server: &ServerName) -> Waiter {
        self.join_at(WaitKey::Settled(key.clone(), server.clone()))
    }

    /// Waits for the turn of a ticket.
    pub(super) fn join_turn(&self, ticket: &Token) -> Waiter {
        self.join_at(WaitKey::Turn(ticket.clone()))
    }

    /// How many outcomes were reported so far: if there are more after a query and before joining, one may concern it.
    pub(super) fn outcomes(&self) -> u64 {
        self.0.outcomes.load(Ordering::Acquire)
    }

    /// This gateway has made a binding of the session at this server.
    pub(super) fn note_binding(&self, key: &SessionKey, server: &ServerName) {
        let settled = WaitKey::Settled(key.clone(), server.clone());
        self.wake(&settled, WakeReason::Ask);
    }

    /// Withdraws the call that waits for the turn of a ticket.
    #[cfg(test)]
    pub(super) fn withdraw(&self, ticket: &Token) {
        self.wake(&WaitKey::Turn(ticket.clone()), WakeReason::Withdrawn);
    }

    fn join_at(&self, key: WaitKey) -> Waiter {
        let mut waiting = self.lock();
        let group = waiting.entry(key.clone()).or_insert_with(|| WaitingGroup {
            calls: 0,
            wake_ups: watch::Sender::new(WakeReason::Ask),
        });
        group.calls = group.calls.saturating_add(1);
        Waiter {
            waiters: self.clone(),
            key,
            wake_ups: group.wake_ups.subscribe(),
        }
    }

    /// Whether the store currently reports the events of the whole fleet to this gateway.
    pub(super) fn receives_events(&self) -> bool {
        self.0.receives_events.load(Ordering::Relaxed)
    }

    pub(super) fn set_receives_events(&self, receives_events: bool) {
        self.0
            .receives_events
            .store(receives_events, Ordering::Relaxed);
    }

    fn wake(&self, key: &WaitKey, reason: WakeReason) {
        if let Some(waiting) = self.lock().get(key) {
            waiting.wake_ups.send_modify(|last| {
                if *last != WakeReason::Withdrawn {
                    *last = reason;
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingCalls> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Waits up to `at_most` for an event.
    pub(super) async fn woken(&mut self, at_most: Duration) {
        // The sender lives as long as its waiters, so this ends by an event or by the timeout.
        let _ = tokio::time::timeout(at_most, self.wake_ups.changed()).await;
    }

    /// Whether the call was withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        *self.wake_ups.borrow() == WakeReason::Withdrawn
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        let is_last = waiting.get_mut(&self.key).is_some_and(|group| {
            group.calls = group.calls.saturating_sub(1);
            group.calls == 0
        });
        if is_last {
            waiting.remove(&self.key);
        }
    }
}

/// Watches for a binding of a session at a server, from its creation on.
#[derive(Debug)]
pub struct BindingWatch(Waiter);

impl BindingWatch {
    /// Returns when the binding may have been made: by this gateway, or by another one whose claim a call here waits for.
    /// Not every binding that another gateway makes is noticed. Cancel safe.
    pub async fn may_be_made(&mut self) {
        // The sender lives as long as its waiters.
        let _ = self.0.wake_ups.changed().await;
    }
}

impl Waiters {
    /// Begins to watch for the session's binding at this server.
    pub(super) fn watch_binding(&self, key: &SessionKey, server: &ServerName) -> BindingWatch {
        BindingWatch(self.join(key, server))
    }

    /// Wakes those who wait for this event.
    pub(super) fn wake_by(&self, item: WorkerEvent) {
        match item {
            WorkerEvent::Settled { key, server } => {
                metrics::claim_news();
                self.0.outcomes.fetch_add(1, Ordering::AcqRel);
                self.wake(&WaitKey::Settled(key, server), WakeReason::Ask);
            }
            // Without a waiter, its ticket is already being released.
            WorkerEvent::Turn { ticket, .. } => self.wake(&WaitKey::Turn(ticket), WakeReason::Ask),
            WorkerEvent::Withdrawn { ticket, .. } => {
                self.wake(&WaitKey::Turn(ticket), WakeReason::Withdrawn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::names::SessionId;

    use super::*;

    fn key(id: &[u8]) -> SessionKey {
        SessionKey::mcp("mcpgw:", &SessionId::parse(id).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn events_wake_only_their_waiters() {
        let waiters = Waiters::default();
        let server = ServerName::parse(b"tools").unwrap();
        let mut first = waiters.join(&key(b"a"), &server);
        let mut second = waiters.join(&key(b"a"), &server);
        let mut other = waiters.join(&key(b"b"), &server);
        waiters.wake(
            &WaitKey::Settled(key(b"a"), server.clone()),
            WakeReason::Ask,
        );

        let started = tokio::time::Instant::now();
        let long = Duration::from_secs(60);
        first.woken(long).await;
        second.woken(long).await;
        assert_eq!(
            started.elapsed(),
            Duration::ZERO,
            "woken before they waited"
        );
        other.woken(long).await;
        assert_eq!(started.elapsed(), long, "not what it waits for");
        first.woken(long).await;
        assert_eq!(started.elapsed(), long * 2, "an event wakes once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawal_is_final() {
        let waiters = Waiters::default();
        let tickets = [b"t1", b"t2"].map(|ticket| Token::parse(ticket).unwrap());
        let [mut waiter, other] = tickets.each_ref().map(|ticket| waiters.join_turn(ticket));
        let [ticket, _] = tickets;
        assert!(!waiter.is_withdrawn());
        for reason in [WakeReason::Withdrawn, WakeReason::Ask] {
            waiters.wake(&WaitKey::Turn(ticket.clone()), reason);
        }
        let started = tokio::time::Instant::now();
        waiter.woken(Duration::from_secs(60)).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert!(waiter.is_withdrawn() && !other.is_withdrawn());
    }

    #[test]
    fn dropped_waiters_are_removed() {
        let waiters = Waiters::default();
        let server = ServerName::parse(b"tools").unwrap();
        let first = waiters.join(&key(b"a"), &server);
        let second = waiters.join(&key(b"a"), &server);
        drop(first);
        assert_eq!(waiters.lock().len(), 1);
        drop(second);
        assert_eq!(waiters.lock().len(), 0);
    }

    #[test]
    fn waiters_that_are_dropped_at_once_are_removed() {
        let waiters = Waiters::default();
        let server = ServerName::parse(b"tools").unwrap();
        for _ in 0..2_000 {
            let both = [(); 2].map(|()| waiters.join(&key(b"a"), &server));
            std::thread::scope(|scope| {
                for waiter in both {
                    scope.spawn(move || drop(waiter));
                }
            });
            assert_eq!(waiters.lock().len(), 0);
        }
    }
}
