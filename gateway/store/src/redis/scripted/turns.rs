//! Turns over all gateways: entering, leaving, picking up a grant, and routes that are delegated.
//!
//! Invariant: a step that begins after another one of this gateway finds what that one wrote.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use mooring_session::names::{ServerName, Token};
use mooring_session::refusal::Refusal;
use mooring_session::rules::RouteRequest;
use mooring_session::time::Millis;
use mooring_session::turns::QueueView;
use mooring_usage::for_same_user;
use tokio::runtime::Handle;

use super::super::link_state::Resend;
use super::ScriptedStore;
use super::step::{Reads, Step};
use crate::blockers::{SessionBlockers, TurnQueueView};
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::status::AnsweredBy;
use crate::transition::{Explain, GetBlockers};
use crate::turns::{
    self, DelegatedRoute, EnterReply, EnterRequest, LeaveRequest, LeaveTarget, QueueReply,
    TurnEnding,
};

impl ScriptedStore {
    pub(in super::super) async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        let _locked = self.locks.lock(key).await;
        let (route, turn) = (request.route(), request.turn());
        // The same ticket gets the same reply again.
        self.step(key, with_turns(), Resend::Once, |step| {
            let routed = step.decide(&route)?;
            // A turn of a session that has just ended, or whose binding has moved, is none.
            step.depend_on_record();
            let place = step.place().clone();
            let entered = step.with_turns(|turns, context| {
                let status = turns.enter(&place, &request.server, &turn, context)?;
                let holder = || turns.holder_of(&place, &request.server, context.mono);
                Ok(QueueReply::of(request, status, holder))
            });
            let entered = entered.unwrap_or(Err(Refusal::NoSession))?;
            Ok(entered.with_route(routed, AnsweredBy::Store))
        })
        .await
    }

    pub(in super::super) async fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        let _locked = self.locks.lock(key).await;
        self.leave_locked(key, request).await
    }

    /// A repeated LEAVE is refused, as if the first one had failed.
    async fn leave_locked(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        self.step(key, with_turns(), Resend::Never, |step| {
            let record = step.slot.as_ref().ok_or(Refusal::NoSession)?;
            if record.principal != request.principal {
                return Err(Refusal::Denied);
            }
            let state = record.lifetime.state(step.now);
            let (place, server) = (step.place().clone(), &request.server);
            let left = step.with_turns(|turns, context| match &request.who {
                LeaveTarget::Ticket(ticket) => turns.leave(&place, server, ticket, context),
                LeaveTarget::WaitingUnder(beginning) => {
                    turns.withdraw(&place, server, beginning, context).map(drop)
                }
            });
            turns::left(left.unwrap_or(Ok(())), state)
        })
        .await
    }

    /// Leaves without a caller that waits for it. Its place among the steps of the session is taken at once.
    pub(in super::super) fn leave_unawaited(
        self: &Arc<Self>,
        ending: impl TurnEnding,
        started: Instant,
    ) {
        // Without a runtime the process is stopping.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut locking = Box::pin(self.locks.of(ending.key()).lock_owned());
        let locked = (&mut locking).now_or_never();
        let store = Arc::clone(self);
        runtime.spawn(for_same_user(async move {
            let guard = match locked {
                Some(guard) => guard,
                None => locking.await,
            };
            let left = {
                let _locked = store.locks.held(ending.key(), guard);
                store.leave_locked(ending.key(), ending.turn()).await
            };
            ending.attempted(started, Some(left));
        }));
    }

    /// Whether the grant of an event is still valid. Its lease starts now.
    pub(super) async fn pick_up(
        &self,
        key: &SessionKey,
        server: &ServerName,
        ticket: &Token,
        turn: u64,
    ) -> Result<bool, StoreError> {
        let _locked = self.locks.lock(key).await;
        self.step(key, with_turns(), Resend::Once, |step| {
            let (place, mono) = (step.place().clone(), step.mono);
            let is_valid =
                step.with_turns(|turns, _| turns.pick_up(&place, server, ticket, turn, mono));
            Ok(is_valid.unwrap_or_default())
        })
        .await
    }

    /// Does what is due in the queues of a session.
    pub(super) async fn look(&self, key: &SessionKey) -> Result<(), StoreError> {
        let _locked = self.locks.lock(key).await;
        self.step(key, with_turns(), Resend::Once, |_| Ok(())).await
    }

    pub(in super::super) async fn delegate_route(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
        lease: Millis,
    ) -> Result<DelegatedRoute, StoreError> {
        let _locked = self.locks.lock(key).await;
        self.step(key, with_turns(), Resend::Once, |step| {
            let routed = step.decide(request)?;
            let (place, until) = (step.place().clone(), step.mono.plus(lease));
            step.depend_on_record();
            let is_watched = step.with_turns(|_, context| {
                let (worker, server) = (&request.worker, &request.server);
                context
                    .events
                    .watch_delegation(worker, &place, server, until)
            });
            Ok(DelegatedRoute {
                routed,
                delegated_for: is_watched.unwrap_or_default().then_some(lease),
            })
        })
        .await
    }

    pub(in super::super) async fn explain(
        &self,
        key: &SessionKey,
    ) -> Result<Vec<String>, StoreError> {
        let session = key.digest();
        self.step(key, with_turns(), Resend::Once, |step| {
            let queues = queues_of(step);
            let session = session.clone();
            step.decide(&Explain { session, queues })
        })
        .await
    }

    pub(in super::super) async fn blockers(
        &self,
        key: &SessionKey,
    ) -> Result<SessionBlockers, StoreError> {
        self.step(key, with_turns(), Resend::Once, |step| {
            let blockers = step.decide(&GetBlockers)?;
            let queues = queues_of(step);
            Ok(SessionBlockers {
                turns: Some(queues.iter().map(TurnQueueView::of).collect()),
                ..blockers
            })
        })
        .await
    }
}

fn with_turns() -> Reads {
    Reads {
        turns: true,
        ..Reads::default()
    }
}

fn queues_of(step: &mut Step<'_>) -> Vec<QueueView> {
    let (place, mono) = (step.place().clone(), step.mono);
    let queues = step.with_turns(|turns, _| turns.of_session(&place, mono));
    queues.unwrap_or_default()
}
