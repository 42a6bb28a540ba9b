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

mod desired_state;
mod fleet;
mod history;
mod inits;
mod journal;
mod loss;
mod memory;
mod memory_transition;
mod rates;
mod reconcile;
mod sealed;
mod sessions;
mod shadow;
mod shared;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mooring_session::time::Millis;
use tokio::sync::watch;

pub use self::loss::{Loss, LossReason, Losses};
pub(super) use self::memory_transition::MemoryTransition;
use self::shared::{Phase, RETRY_AFTER, Shared};
use crate::clock::Clock;
use crate::error::{StoreError, UnavailableReason};
use crate::key::{InitDigest, SessionKey};
use crate::queues::Queues;
use crate::redis::{LinkState, RedisStore};
use crate::status::{StatusCell, StoreMode};

/// Most queued losses. Beyond it they are logged and dropped.
const LOSSES_MAX: usize = 10_000;

/// Handle of the store and of its supervisor task, which ends with the handle.
#[derive(Debug)]
pub(super) struct FallbackStore {
    shared: Arc<Shared>,
    supervisor: tokio::task::JoinHandle<()>,
    losses_taken: flume::Receiver<Loss>,
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
            memory: Mutex::default(),
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
        let by_redis = async || {
            let result = shared.redis.run(key, request).await;
            shared.note(key, request, result.as_ref());
            result
        };
        let by_memory = || shared.serve_away(key, request);
        shared.serve(T::RESEND, by_redis, by_memory).await
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
        if !memory.journal.inits.contains(digest) {
            memory.journal.inits.push(digest.clone());
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
