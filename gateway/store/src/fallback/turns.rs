//! Turns, events and rates of a store that falls back to memory.
//!
//! While Redis is away, every gateway orders its own callers, without order across gateways: a session's calls stay in
//! order as long as they reach one gateway. When Redis returns, these turns end: waiting callers must enter again, and
//! a holder that renews names the turn that it had.

use std::time::{Duration, Instant};

use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::rules::{RateRequest, RouteRequest};
use mooring_session::time::Millis;

use super::FallbackStore;
use super::memory::EveryWorkerAlive;
use super::sealed::AWAY;
use super::shared::Phase;
use crate::error::StoreError;
use crate::events::{EventPath, WorkerEvent};
use crate::key::SessionKey;
use crate::rate::RateReply;
use crate::redis::Resend;
use crate::status::AnsweredBy;
use crate::turns::{DelegatedRoute, EnterReply, EnterRequest, LeaveRequest, TurnEnding, TurnScope};

impl FallbackStore {
    pub(crate) async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        let shared = &self.shared;
        let route = request.route();
        let by_redis = async || {
            let result = shared.redis.enter(key, request).await;
            let routed = result.as_ref().map(|entered| &entered.routed);
            shared.note(key, &route, routed);
            result
        };
        let by_memory = || {
            let entered = shared.serve_away(key, &route)?.and_then(|routed| {
                let workers = &EveryWorkerAlive::default();
                // Memory delegates nothing: its turns end when Redis returns, of which no call is told.
                let request = &EnterRequest {
                    scope: TurnScope::Call,
                    ..request.clone()
                };
                let entered = shared.queues.enter(key, request, workers)?;
                Ok(entered.with_route(routed, AnsweredBy::Memory))
            });
            if entered.is_err() || *shared.phase.borrow() == Phase::Away {
                return Some(entered);
            }
            // Redis has returned meanwhile and assigns turns again.
            shared.queues.dissolve(&EveryWorkerAlive::default());
            None
        };
        shared.serve(Resend::Once, by_redis, by_memory).await
    }

    /// While memory routes, nothing is delegated.
    pub(crate) async fn delegate_route(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
        lease: Millis,
    ) -> Result<DelegatedRoute, StoreError> {
        let shared = &self.shared;
        let by_redis = async || {
            let result = shared.redis.delegate_route(key, request, lease).await;
            let routed = result.as_ref().map(|delegated| &delegated.routed);
            shared.note(key, request, routed);
            result
        };
        let by_memory = || {
            let routed = shared.serve_away(key, request)?;
            Some(routed.map(|routed| DelegatedRoute {
                routed,
                delegated_for: None,
            }))
        };
        shared.serve(Resend::Once, by_redis, by_memory).await
    }

    /// Releases a turn in memory if memory assigned it, otherwise in Redis, where its lease expires if Redis is
    /// unreachable.
    pub(crate) async fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        if shared.memory().is_foreign(key, &request.principal) {
            return Err(StoreError::Refused(Refusal::Denied));
        }
        match shared
            .queues
            .leave(key, request, &EveryWorkerAlive::default())
        {
            Ok(()) => Ok(()),
            // A call that has its turn from memory is not queued in Redis.
            Err(refusal @ Refusal::Busy(_)) => Err(refusal.into()),
            Err(_) => shared.present().await?.leave(key, request).await,
        }
    }

    /// Releases a turn whose caller does not wait for that.
    pub(crate) fn leave_unawaited(&self, ending: impl TurnEnding, started: Instant) {
        let shared = &self.shared;
        if *shared.phase.borrow() != Phase::Normal {
            return ending.retry(Duration::ZERO);
        }
        match (shared.queues).leave(ending.key(), ending.turn(), &EveryWorkerAlive::default()) {
            // As above: memory assigned it.
            Ok(()) | Err(Refusal::Busy(_)) => {}
            Err(_) => shared.redis.leave_unawaited(ending, started),
        }
    }

    /// Waits for events in Redis, or in memory while it is away. A change between the two ends the wait early.
    pub(crate) async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        let shared = &self.shared;
        let mut changes = shared.phase.subscribe();
        let phase = *changes.borrow_and_update();
        let step = || {
            shared.queues.advance(&EveryWorkerAlive::default());
            std::future::ready(())
        };
        if phase != Phase::Normal || shared.queues.has(worker) {
            return tokio::select! {
                biased;
                items = shared.queues.wait(worker, timeout, step) => Ok(items),
                _ = changes.changed() => Ok(Vec::new()),
            };
        }
        tokio::select! {
            biased;
            events = shared.redis.wait_for_events(worker, timeout) => events,
            _ = changes.changed() => Ok(Vec::new()),
        }
    }

    /// The way by which this worker's events arrive, while they do.
    pub(crate) fn event_path(&self, worker: &WorkerId) -> Option<EventPath> {
        match *self.shared.phase.borrow() {
            Phase::Normal => self.shared.redis.event_path(worker),
            Phase::Away => Some(EventPath::IN_PROCESS),
            Phase::Reconciling => None,
        }
    }

    /// The rate of the whole fleet: memory knows only what this gateway has counted.
    pub(crate) async fn rate_shared(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        let shared = &self.shared;
        let rated = shared.by_redis(|| shared.redis.rate(name, request));
        rated.await?.ok_or(AWAY)
    }

    pub(crate) async fn rate(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        let shared = &self.shared;
        // Of one primary that is away, memory counts in its place, without a pause.
        let by_redis = async || match shared.redis.rate(name, request).await {
            Err(StoreError::NotReady(why)) if why.is_of_primary() => Ok(None),
            rated => rated.map(Some),
        };
        if let Some(Some(rated)) = shared.by_redis(by_redis).await? {
            return Ok(rated);
        }
        let now = shared.clock.now();
        Ok(shared.memory().rates.rate(name, request, now))
    }
}
