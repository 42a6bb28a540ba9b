//! Redis with a fallback to memory: while Redis is unreachable, memory serves what it safely can, and the changes are
//! sent to Redis when it returns.
//!
//! Only transport failures count: a server that replies LOADING or READONLY is reachable, and its callers get an error
//! to retry (a server that has become a replica is tried again for a while: its address will soon lead to the next
//! primary). There are three phases, and every command is served in exactly one of them. *Normal*: by Redis; what this
//! gateway reads is noted in the [`shadow`]. *Away*: by [`memory`]. *Reconciling*: by neither, while [`reconcile`]
//! sends the changes to Redis; callers wait for at most the command timeout, plus one command.
//!
//! A command that is in flight when Redis goes away may have been executed there. It is then served from memory like
//! one that was not sent. That is safe: memory serves a BIND, REBIND or CONFIRM only on a binding that it has read
//! before, and reconciliation uses the tokens of the original attempts, so that what Redis already has is recognized
//! and used, or wins.

mod fleet;
mod loss;
mod memory;
mod memory_transition;
mod reconcile;
mod sealed;
mod shadow;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::time::{Millis, Monotonic};
use tokio::sync::watch;

pub use self::loss::{Loss, LossReason, Losses};
use self::memory::{EveryWorkerAlive, Memory};
pub(super) use self::memory_transition::MemoryTransition;
use super::clock::Clock;
use super::error::{StoreError, UnavailableReason};
use super::key::{InitDigest, SessionKey};
use super::queues::Queues;
use super::redis::{LinkState, RedisStore, Resend};
use super::status::{StatusCell, StoreMode};

/// Most queued losses. Beyond it they are logged and dropped.
const LOSSES_MAX: usize = 10_000;
/// For so long from the beginning of an absence, or since the server has become a replica, a command waits that memory cannot
/// serve: a failover takes about two seconds, and some clients end their session at the first 503. A longer absence is not
/// waited for.
const RETURNS_WITHIN: Duration = Duration::from_secs(4);
/// Pause before the next attempt to reconcile with a Redis that replies but is not ready, and before
/// the next command to one that is a replica.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Which part serves commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Normal,
    Away,
    Reconciling,
}

/// Handle of the store and of its supervisor task, which ends with the handle.
#[derive(Debug)]
pub(super) struct FallbackStore {
    shared: Arc<Shared>,
    supervisor: tokio::task::JoinHandle<()>,
    losses_taken: flume::Receiver<Loss>,
}

/// State shared by commands and the supervisor.
#[derive(Debug)]
struct Shared {
    redis: RedisStore,
    /// Changed only while the memory is locked, so that the lock's holder can rely on it.
    phase: watch::Sender<Phase>,
    memory: Mutex<Memory>,
    /// The turns of this gateway's callers while Redis is away.
    queues: Queues,
    status: StatusCell,
    losses: flume::Sender<Loss>,
    command_timeout: Duration,
    clock: Clock,
}

impl Drop for FallbackStore {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl FallbackStore {
    /// The Redis whose outages it bridges.
    pub(super) fn redis(&self) -> &RedisStore {
        &self.shared.redis
    }

    /// Wraps a Redis, which may be unreachable.
    pub(super) fn new(redis: RedisStore, command_timeout: Duration, prefix: &str) -> Self {
        let (losses, losses_taken) = flume::bounded(LOSSES_MAX);
        let clock = Clock::system();
        let shared = Arc::new(Shared {
            phase: watch::Sender::new(Phase::Normal),
            memory: Mutex::new(Memory::new()),
            queues: Queues::new(clock.clone(), prefix),
            status: StatusCell::new(StoreMode::Normal),
            losses,
            command_timeout,
            clock,
            redis,
        });
        if !matches!(*shared.redis.watch().borrow(), LinkState::Up(_)) {
            shared.go_away();
        }
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared)));
        Self {
            shared,
            supervisor,
            losses_taken,
        }
    }

    pub(super) fn losses(&self) -> Losses {
        Losses::of(self.losses_taken.clone())
    }

    pub(super) fn status(&self) -> &StatusCell {
        &self.shared.status
    }

    /// Runs a transition.
    pub(super) async fn run<T: MemoryTransition>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        let shared = &self.shared;
        let started = Instant::now();
        let mut has_waited = T::RESEND == Resend::Never;
        loop {
            let answer = shared.by_redis(|| shared.redis.run(key, request)).await;
            if let Some(result) = answer.transpose() {
                shared.note(key, request, result.as_ref());
                return result;
            }
            let served = shared.serve_away(key, request);
            let is_away = matches!(served, Some(Err(StoreError::Away(_))));
            if is_away && shared.returns_soon(&mut has_waited).await {
                continue;
            }
            if let Some(result) = served {
                return result;
            }
            // Redis has returned meanwhile. The command is sent there if there is time, and if a repetition is
            // harmless.
            if T::RESEND == Resend::Never || started.elapsed() >= shared.command_timeout {
                return Err(StoreError::Away(UnavailableReason::Reconciling));
            }
        }
    }

    /// Params are stored in memory too: they are few, and a session served from memory needs its own.
    pub(super) async fn put_init(
        &self,
        digest: &InitDigest,
        json: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        let lapses_at = shared.clock.now().plus(keep);
        shared.memory().inits.put(digest, json, lapses_at);
        let put = shared.by_redis(|| shared.redis.put_init(digest, json, keep));
        if put.await?.is_some() {
            return Ok(());
        }
        let mut memory = shared.memory();
        if !memory.pending_inits.contains(digest) {
            memory.pending_inits.push(digest.clone());
        }
        Ok(())
    }

    /// While Redis is away, the params there expire.
    pub(super) async fn delete_init(&self, digest: &InitDigest) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.memory().inits.delete(digest);
        let deleted = shared.by_redis(|| shared.redis.delete_init(digest));
        deleted.await.map(drop)
    }

    pub(super) async fn get_init(&self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        let shared = &self.shared;
        let got = shared.by_redis(|| shared.redis.get_init(digest));
        if let Some(json) = got.await? {
            return Ok(json);
        }
        let now = shared.clock.now();
        match shared.memory().inits.get(digest, now) {
            Some(json) => Ok(Some(json.to_owned())),
            None => Err(StoreError::Away(UnavailableReason::Unknown)),
        }
    }
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phase after a reconciliation in progress, which is waited for at most as long as for a command.
    async fn settled_phase(&self) -> Result<Phase, StoreError> {
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
    async fn by_redis<R, F>(&self, command: impl Fn() -> F) -> Result<Option<R>, StoreError>
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
                Err(StoreError::NotReady(why)) if why.is_of_replica() => {
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
    fn serve_away<T: MemoryTransition>(
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

    fn note<T: MemoryTransition>(
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
    fn go_away(&self) {
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

    fn enter(&self, next: Phase) {
        let mut memory = self.memory();
        self.phase.send_replace(next);
        if next == Phase::Normal {
            memory.forget_workers();
            // From here on Redis assigns turns.
            self.queues.dissolve(&EveryWorkerAlive::default());
            self.status.set(StoreMode::Normal);
        }
    }

    fn report(&self, loss: Loss) {
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

/// Notices that Redis went away without a failed command, and reconciles when it returns.
async fn supervise(shared: Arc<Shared>) {
    let mut link = shared.redis.watch();
    let mut phase = shared.phase.subscribe();
    loop {
        tokio::select! {
            down = link.wait_for(|state| matches!(state, LinkState::Down(_))) => {
                if down.is_err() {
                    return;
                }
                drop(down);
                shared.go_away();
            }
            away = phase.wait_for(|phase| *phase == Phase::Away) => {
                if away.is_err() {
                    return;
                }
            }
        }
        let mut last_error = None;
        while *shared.phase.borrow() != Phase::Normal {
            let returned = link.wait_for(|state| matches!(state, LinkState::Up(_)));
            if returned.await.is_err() {
                return;
            }
            shared.enter(Phase::Reconciling);
            match reconcile::reconcile(&shared).await {
                Ok(()) => shared.enter(Phase::Normal),
                Err(error) => {
                    // A server that loads for minutes gets a single line.
                    if last_error.as_ref() != Some(&error) {
                        tracing::warn!(%error, "redis has returned but cannot be reconciled yet");
                        last_error = Some(error);
                    }
                    shared.enter(Phase::Away);
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }
}
