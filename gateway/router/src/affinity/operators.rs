//! Does what operators want of this gateway, as the store has it: parks instances, and drains the gateway itself.
//!
//! Invariant: while the store cannot be read, what was read last stays in force.

use std::time::Duration;

use mooring_session::names::WorkerId;
use mooring_session::record::SessionState;
use mooring_session::workers::Drain;
use mooring_store::{PAGE_MAX, SessionQuery, StoreError};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::SessionRouter;
use crate::departure::DeparturePhase;

/// Most pages of sessions that are counted: a gateway that owns more is far from drained.
const PAGES_MAX: usize = 100;

/// How far a gateway is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrainProgress {
    /// The gateway.
    pub worker: Box<str>,
    /// Whether its last heartbeat is still valid.
    pub is_alive: bool,
    /// Whether it has announced to drain.
    pub is_draining: bool,
    /// The sessions with a connection or a stream that only this gateway has.
    pub owned_sessions: u64,
    /// The messages of clients that it answers now; none for another gateway than the one that is asked.
    pub calls: Option<u64>,
}

impl DrainProgress {
    /// Whether it can be stopped without a loss of state: it takes on nothing, and owns nothing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.is_alive
            || self.is_draining
                && self.owned_sessions == 0
                && self.calls.is_none_or(|calls| calls == 0)
    }
}

/// Follows what operators want, until it is dropped. `leave` is how long load balancers get to notice that this gateway
/// drains.
pub async fn follow_operators(router: SessionRouter, leave: Duration) {
    let mut desired = router.store().watch_desired_state();
    let departure = router.departure();
    let mut leaving_since = None;
    loop {
        router.apply_parking();
        let wanted = desired.borrow_and_update().clone();
        let due_at = match wanted.draining_note(router.worker()) {
            Some(note) => {
                let since = *leaving_since.get_or_insert_with(Instant::now);
                if departure.phase() == DeparturePhase::Serving {
                    tracing::warn!(by = %note.by, note = %note.note, "draining, as an operator wants");
                }
                departure.advance(DeparturePhase::Leaving);
                Some(since + leave)
            }
            None => {
                if leaving_since.take().is_some() {
                    tracing::warn!("draining ended by an operator");
                    departure.come_back();
                }
                None
            }
        };
        let due = async {
            match due_at.filter(|_| departure.phase() < DeparturePhase::Draining) {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = desired.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = due => departure.advance(DeparturePhase::Draining),
        }
    }
}

impl SessionRouter {
    /// How far a gateway is drained, as any gateway can tell. None if the store does not know it.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn drain_progress(
        &self,
        worker: &WorkerId,
    ) -> Result<Option<DrainProgress>, StoreError> {
        let mut workers = self.store().workers().await?.into_iter();
        let Some(view) = workers.find(|view| view.worker == *worker) else {
            return Ok(None);
        };
        let calls = (*worker == *self.worker()).then(|| self.active_bindings().in_call().len());
        Ok(Some(DrainProgress {
            worker: worker.as_str().into(),
            is_alive: view.alive,
            is_draining: view.drain == Drain::Draining,
            owned_sessions: self.count_owned(worker).await?,
            calls: calls.map(|calls| u64::try_from(calls).unwrap_or(u64::MAX)),
        }))
    }

    async fn count_owned(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        let mut query = SessionQuery {
            owner: Some(worker.clone()),
            state: Some(SessionState::Active),
            count: PAGE_MAX,
            ..SessionQuery::default()
        };
        let mut owned = 0_usize;
        for _ in 0..PAGES_MAX {
            let page = self.store().list(&query).await?;
            owned = owned.saturating_add(page.sessions.len());
            query.cursor = page.cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        Ok(u64::try_from(owned).unwrap_or(u64::MAX))
    }

    /// Parks the instances that operators want parked, and no others. Called again after the servers were replaced.
    pub fn apply_parking(&self) {
        let wanted = self.store().desired_state();
        self.servers()
            .park(|server, instance| wanted.parks_instance(server, instance));
    }
}
