//! The task that takes the store's events for this gateway: it wakes who waits, and recalls what was delegated.
//!
//! Invariant: delegations depend on events arriving, so this ends them when they do not.

use std::time::Duration;

use mooring_session::names::{ServerName, WorkerId};

use super::turn::DelegationTable;
use super::wake_ups::{BindingWatch, Waiters};
use super::{Session, SessionRouter};
use mooring_store::{Store, WorkerEvent};

/// Longest wait for events in one command, within which a silently broken connection is noticed.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between attempts while the store reports no events.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

impl SessionRouter {
    /// Begins to watch for the session's binding at this server.
    #[must_use]
    pub fn watch_binding(&self, session: &Session, server: &ServerName) -> BindingWatch {
        self.waiters().watch_binding(&session.key, server)
    }
}

/// Wakes waiting calls on the store's events, until it is stopped.
pub async fn wake_waiters(router: SessionRouter) {
    let (store, worker) = (router.store(), router.worker());
    serve_events(router.waiters(), store, worker, router.delegations()).await;
}

/// Serves the store's events for this worker, until it is stopped.
pub(super) async fn serve_events(
    waiters: &Waiters,
    store: &Store,
    worker: &WorkerId,
    delegations: &DelegationTable,
) {
    // Once this has stopped, no recall arrives.
    let _lost = LostAtEnd(delegations);
    tokio::select! {
        () = take_events(waiters, store, worker, delegations) => {}
        () = delegations.maintain(store, worker) => {}
    }
}

/// Ends the delegations when it is dropped.
struct LostAtEnd<'a>(&'a DelegationTable);

impl Drop for LostAtEnd<'_> {
    fn drop(&mut self) {
        self.0.lose_wake_ups();
    }
}

async fn take_events(
    waiters: &Waiters,
    store: &Store,
    worker: &WorkerId,
    delegations: &DelegationTable,
) {
    let is_fleet_wide = store.reports_events_of_others();
    // The first answer may take the whole wait, so events are assumed to arrive until the store fails.
    waiters.set_receives_events(is_fleet_wide);
    loop {
        match store.wait_for_events(worker, EVENT_WAIT_MAX).await {
            Ok(items) => {
                waiters.set_receives_events(is_fleet_wide);
                for item in items {
                    recall_by(&item, delegations);
                    waiters.wake_by(item);
                }
            }
            Err(error) => {
                delegations.lose_wake_ups();
                if waiters.receives_events() {
                    tracing::info!(%error, "the store reports no events; claims of other gateways are polled");
                }
                // The first time at once: a peer soon takes over what was delegated to a gateway without events.
                if !waiters.receives_events() {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                waiters.set_receives_events(false);
            }
        }
    }
}

fn recall_by(item: &WorkerEvent, delegations: &DelegationTable) {
    match item {
        WorkerEvent::Settled { key, server } => delegations.recall(key, server),
        // A call under a delegation has no ticket of its own in the store, so its request is named.
        WorkerEvent::Withdrawn {
            key,
            server,
            ticket,
        } => delegations.withdraw(key, server, ticket),
        WorkerEvent::Turn { .. } => {}
    }
}
