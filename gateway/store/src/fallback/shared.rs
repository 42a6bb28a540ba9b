//! What commands and the supervisor share: the phase, and the ways of a command to Redis or memory.
//!
//! Invariant: the phase changes only while the memory is locked.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mooring_session::time::Monotonic;
use tokio::sync::watch;

use super::loss::Loss;
use super::memory::{EveryWorkerAlive, Memory};
use super::memory_transition::MemoryTransition;
use crate::clock::Clock;
use crate::error::{StoreError, UnavailableReason};
use crate::key::SessionKey;
use crate::lock::lock;
use crate::queues::Queues;
use crate::redis::{RedisStore, Resend};
use crate::status::{StatusCell, StoreMode};

/// For so long from the beginning of an absence, or since the server has become a replica, a command waits that memory cannot
/// serve: a failover takes about two seconds, and some clients end their session at the first 503. A longer absence is not
/// waited for.
const RETURNS_WITHIN: Duration = Duration::from_secs(4);
/// Pause before the next attempt to reconcile with a Redis that replies but is not ready, and before
/// the next command to one that is a replica.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Which part serves commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Normal,
    Away,
    Reconciling,
}

/// State shared by commands and the supervisor.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) redis: RedisStore,
    /// Changed only while the memory is locked, so that the lock's holder can rely on it.
    pub(super) phase: watch::Sender<Phase>,
    pub(super) memory: Mutex<Memory>,
    /// The turns of this gateway's callers while Redis is away.
    pub(super) queues: Queues,
    pub(super) status: StatusCell,
    pub(super) losses: flume::Sender<Loss>,
    pub(super) command_timeout: Duration,
    pub(super) clock: Clock,
}

impl Shared {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// The phase after a reconciliation in progress, which is waited for at most as long as for a command.
    pub(super) async fn settled_phase(&self) -> Result<Phase, StoreError> {
        let phase = *self.phase.borrow();
        if phase != Phase::Reconciling {
            return Ok(phase);
        }
        let mut changes = self.phase.subscribe();
        let settled = changes.wait_for(|phase| *phase != Phase::Reconciling);
        match tokio::time::timeout(self.command_timeout, settled).await {
            Ok(Ok(phase)) => Ok(*phase),
            _ => Err(StoreError::Away(UnavailableReason::Reconciling)),
        }
    }

    /// Serves a command by Redis or, while that is away, by memory. `by_memory` returns none if Redis has returned
    /// meanwhile.
    pub(super) async fn serve<R, F>(
        &self,
        resend: Resend,
        by_redis: impl Fn() -> F,
        by_memory: impl Fn() -> Option<Result<R, StoreError>>,
    ) -> Result<R, StoreError>
    where
        F: Future<Output = Result<R, StoreError>>,
    {
        let started = Instant::now();
        let mut has_waited = resend == Resend::Never;
        loop {
            if let Some(reply) = self.by_redis(&by_redis).await? {
                return Ok(reply);
            }
            let served = by_memory();
            let is_away = matches!(served, Some(Err(StoreError::Away(_))));
            if is_away && self.returns_soon(&mut has_waited).await {
                continue;
            }
            if let Some(result) = served {
                return result;
            }
            // Redis has returned meanwhile. The command is sent there if there is time, and if a repetition is
            // harmless.
            if resend == Resend::Never || started.elapsed() >= self.command_timeout {
                return Err(StoreError::Away(UnavailableReason::Reconciling));
            }
        }
    }

    /// Whether Redis serves again soon after it went away. A command waits for it once.
    async fn returns_soon(&self, has_waited: &mut bool) -> bool {
        if std::mem::replace(has_waited, true) {
            return false;
        }
        let left = self.left_to_return(self.memory().away_since);
        let mut changes = self.phase.subscribe();
        let returned = changes.wait_for(|phase| *phase == Phase::Normal);
        matches!(tokio::time::timeout(left, returned).await, Ok(Ok(_)))
    }

    /// How long a command may still wait for the end of an absence that began then.
    fn left_to_return(&self, absent_since: Monotonic) -> Duration {
        let passed = self.clock.mono().ms().saturating_sub(absent_since.ms());
        RETURNS_WITHIN.saturating_sub(Duration::from_millis(passed))
    }

    /// The reply of Redis; `None` while it is away, or if that is found now.
    pub(super) async fn by_redis<R, F>(
        &self,
        command: impl Fn() -> F,
    ) -> Result<Option<R>, StoreError>
    where
        F: Future<Output = Result<R, StoreError>>,
    {
        let mut was_refused = false;
        loop {
            if self.settled_phase().await? != Phase::Normal {
                return Ok(None);
            }
            match command().await {
                Err(StoreError::Away(_)) => {
                    self.go_away();
                    return Ok(None);
                }
                // Nothing was changed.
                Err(StoreError::NotReady(why)) if why.is_of_failover() => {
                    was_refused = true;
                    let now = self.clock.mono();
                    let since = *self.memory().replica_since.get_or_insert(now);
                    if self.left_to_return(since).is_zero() {
                        return Err(StoreError::NotReady(why));
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                result => {
                    if was_refused && result.is_ok() {
                        self.memory().replica_since = None;
                    }
                    return result.map(Some);
                }
            }
        }
    }

    /// The reply of memory; none if Redis returned before the memory was locked.
    pub(super) fn serve_away<T: MemoryTransition>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Option<Result<T::Reply, StoreError>> {
        let mut memory = self.memory();
        if *self.phase.borrow() != Phase::Away {
            return None;
        }
        let result = memory.serve(key, request, self.clock.now());
        drop(memory);
        if let Ok(reply) = &result {
            self.queues.note(
                key,
                request.claim_waiter(reply),
                request.settled_scope(reply),
            );
        }
        Some(result)
    }

    /// Notes what a reply of Redis tells of the session.
    pub(super) fn note<T: MemoryTransition>(
        &self,
        key: &SessionKey,
        request: &T,
        result: Result<&T::Reply, &StoreError>,
    ) {
        match result {
            Ok(reply) => {
                let now = self.clock.mono();
                request.note(key, reply, &mut self.memory().shadow, now);
            }
            Err(StoreError::Refused(refusal)) => {
                request.note_refusal(key, refusal, &mut self.memory().shadow);
            }
            Err(_) => {}
        }
    }

    /// Switches to memory, unless it serves already.
    pub(super) fn go_away(&self) {
        let mut memory = self.memory();
        let is_new = self.phase.send_if_modified(|phase| {
            let is_new = *phase == Phase::Normal;
            if is_new {
                *phase = Phase::Away;
            }
            is_new
        });
        if is_new {
            memory.away_since = self.clock.mono();
            self.status.set(StoreMode::Degraded);
        }
    }

    /// Changes the phase.
    pub(super) fn enter(&self, next: Phase) {
        let mut memory = self.memory();
        self.phase.send_replace(next);
        if next == Phase::Normal {
            memory.forget_workers();
            // From here on Redis assigns turns.
            self.queues.dissolve(&EveryWorkerAlive::default());
            self.status.set(StoreMode::Normal);
        }
    }

    /// Logs a loss, and queues it: its upstream session is to be deleted.
    pub(super) fn report(&self, loss: Loss) {
        tracing::warn!(
            session = loss.key.digest(),
            server = %loss.server,
            instance = %loss.instance,
            reason = %loss.reason,
            "binding from the outage discarded"
        );
        if self.losses.try_send(loss).is_err() {
            tracing::error!("loss queue full: an upstream session is left to expire");
        }
    }
}
