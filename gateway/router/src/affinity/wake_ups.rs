//! Wake-ups: the calls that wait here for another worker's claim or for a turn, and the one task that wakes them.
//!
//! Invariant: nothing depends on a wake-up. A call that is woken asks the store again; one that is not asks again after
//! a timeout.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mooring_session::names::{ServerName, Token, WorkerId};
use tokio::sync::watch;

use super::SessionRouter;
use mooring_metrics as metrics;
use mooring_store::{SessionKey, Store, WorkerEvent};

/// Longest wait for events in one command: within it a silently broken connection is noticed.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts while the store reports no events.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WaitKey {
    /// What the store said is under way for a session at a server comes to something.
    Settled(SessionKey, ServerName),
    /// The ticket's turn comes.
    Turn(Token),
}

/// What somebody was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    /// To ask the store.
    Ask,
    /// That what it waits for is wanted no more. Nothing else is told after that.
    Withdrawn,
}

type WaitingCalls = HashMap<WaitKey, watch::Sender<WakeReason>>;

/// Those who wait on this worker. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    places: Mutex<WaitingCalls>,
    receives_events: AtomicBool,
}

/// Waits for one thing. Ends when dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    waiters: Waiters,
    key: WaitKey,
    wake_ups: watch::Receiver<WakeReason>,
}

impl Waiters {
    /// Waits for the outcome of a claim of this session at this server. Every event from now on wakes the waiter, also
    /// one before it is first awaited.
    pub(super) fn join(&self, key: &SessionKey, server: &ServerName) -> Waiter {
        self.join_at(WaitKey::Settled(key.clone(), server.clone()))
    }

    /// The same for the turn of a ticket.
    pub(super) fn join_turn(&self, ticket: &Token) -> Waiter {
        self.join_at(WaitKey::Turn(ticket.clone()))
    }

    /// Tells whoever waits for the turn of a ticket that it is wanted no more.
    #[cfg(test)]
    pub(super) fn withdraw(&self, ticket: &Token) {
        self.wake(&WaitKey::Turn(ticket.clone()), WakeReason::Withdrawn);
    }

    fn join_at(&self, key: WaitKey) -> Waiter {
        let wake_ups = self
            .lock()
            .entry(key.clone())
            .or_insert_with(|| watch::Sender::new(WakeReason::Ask))
            .subscribe();
        Waiter {
            waiters: self.clone(),
            key,
            wake_ups,
        }
    }

    /// Whether the store reports the events of the whole fleet to this worker at present.
    pub(super) fn receives_events(&self) -> bool {
        self.0.receives_events.load(Ordering::Relaxed)
    }

    fn set_receives_events(&self, receives_events: bool) {
        self.0
            .receives_events
            .store(receives_events, Ordering::Relaxed);
    }

    fn wake(&self, key: &WaitKey, told: WakeReason) {
        if let Some(waiting) = self.lock().get(key) {
            waiting.send_modify(|last| {
                if *last != WakeReason::Withdrawn {
                    *last = told;
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingCalls> {
        // The map is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Waits for an event, for `at_most` this long.
    pub(super) async fn woken(&mut self, at_most: Duration) {
        // The sender lives as long as its waiters, so this ends by an event or by the timeout.
        let _ = tokio::time::timeout(at_most, self.wake_ups.changed()).await;
    }

    /// Whether it was told that what it waits for is wanted no more.
    pub(super) fn is_withdrawn(&self) -> bool {
        *self.wake_ups.borrow() == WakeReason::Withdrawn
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut places = self.waiters.lock();
        let is_last = places
            .get(&self.key)
            .is_some_and(|waiting| waiting.receiver_count() <= 1);
        if is_last {
            places.remove(&self.key);
        }
    }
}

/// Wakes the waiting calls by the store's events, until it is stopped.
pub async fn wake_waiters(router: SessionRouter) {
    router.waiters().tell(router.store(), router.worker()).await;
}

impl Waiters {
    /// Wakes the waiting calls by the events that the store has for this worker, until it is stopped.
    pub(super) async fn tell(&self, store: &Store, worker: &WorkerId) {
        let is_fleet_wide = store.reports_events_of_others();
        // The first answer may take the whole wait; until the store fails, events are assumed to arrive.
        self.set_receives_events(is_fleet_wide);
        loop {
            match store.wait_for_events(worker, EVENT_WAIT_MAX).await {
                Ok(items) => {
                    self.set_receives_events(is_fleet_wide);
                    for item in items {
                        self.wake_by(item);
                    }
                }
                Err(error) => {
                    if self.receives_events() {
                        tracing::info!(%error, "the store reports no events; claims of other workers are polled");
                    }
                    self.set_receives_events(false);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn wake_by(&self, item: WorkerEvent) {
        match item {
            WorkerEvent::Settled { key, server } => {
                metrics::claim_news();
                self.wake(&WaitKey::Settled(key, server), WakeReason::Ask);
            }
            // Where nobody waits for it any more, its ticket is being given back.
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
    async fn news_wakes_those_who_wait_for_it_and_nobody_else() {
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
        assert_eq!(started.elapsed(), Duration::ZERO, "told before they waited");
        other.woken(long).await;
        assert_eq!(started.elapsed(), long, "not what it waits for");
        first.woken(long).await;
        assert_eq!(started.elapsed(), long * 2, "news is told once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_withdrawn_stays_so_whatever_is_told_later() {
        let waiters = Waiters::default();
        let tickets = [b"t1", b"t2"].map(|ticket| Token::parse(ticket).unwrap());
        let [mut told, other] = tickets.each_ref().map(|ticket| waiters.join_turn(ticket));
        let [ticket, _] = tickets;
        assert!(!told.is_withdrawn());
        for told in [WakeReason::Withdrawn, WakeReason::Ask] {
            waiters.wake(&WaitKey::Turn(ticket.clone()), told);
        }
        let started = tokio::time::Instant::now();
        told.woken(Duration::from_secs(60)).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert!(told.is_withdrawn() && !other.is_withdrawn());
    }

    #[test]
    fn nothing_is_kept_of_those_who_have_gone() {
        let waiters = Waiters::default();
        let server = ServerName::parse(b"tools").unwrap();
        let first = waiters.join(&key(b"a"), &server);
        let second = waiters.join(&key(b"a"), &server);
        drop(first);
        assert_eq!(waiters.lock().len(), 1);
        drop(second);
        assert_eq!(waiters.lock().len(), 0);
    }
}
