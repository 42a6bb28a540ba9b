//! What keeps the table true while calls come and go: wake-ups, recalls, and the end of what is unused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mooring_metrics::{self as metrics, DelegationEvent};
use mooring_session::names::{ServerName, Token, WorkerId};
use tokio::time::{MissedTickBehavior, interval};

use super::delegations::{DelegatedTurn, DelegationTable};
use super::running_call::DelegationKey;
use crate::affinity::boot_clock::boot_now;
use mooring_store::{EventPath, SessionKey, Store};

/// How often the wake-ups are looked after while the table is not empty. More than twice within the time for which they may
/// be unobserved, because each look tells of the time before it.
const LOOK_EVERY: Duration = Duration::from_millis(30);
/// After how many looks unused delegations are swept out.
const SWEEP_EVERY: u32 = 8;

impl DelegationTable {
    /// Another caller waits for the turn, or the binding has changed.
    pub(in crate::affinity) fn recall(&self, key: &SessionKey, server: &ServerName) {
        let key = (key.clone(), server.clone());
        let (left, had_route) = {
            let mut shard = self.shard(&key);
            (shard.delegations.recall(&key), shard.routes.recall(&key))
        };
        self.leave(left, DelegationEvent::Recalled);
        if had_route {
            metrics::delegation(DelegationEvent::RouteRecalled);
        }
    }

    /// A client cancelled the request whose tickets begin with this. If it runs here with a turn that is or was delegated, its
    /// turn ends after a grace.
    pub(in crate::affinity) fn withdraw(
        &self,
        key: &SessionKey,
        server: &ServerName,
        beginning: &Token,
    ) {
        let key: DelegationKey = (key.clone(), server.clone());
        let running = self.shard(&key).delegations.running(&key).cloned();
        let call = running.or_else(|| self.kept.get(&key));
        if let Some(call) = call.filter(|call| call.is_named(&key, beginning)) {
            call.withdraw();
        }
    }

    /// The gateway drains no more: it may get turns again.
    pub(in crate::affinity) fn open(&self) {
        self.is_closed.store(false, Ordering::Release);
    }

    /// The gateway drains: its turns are left, and it gets no more.
    pub(in crate::affinity) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for mut shard in self.shards.parts() {
            shard.routes.lose_wake_ups();
            // The turns of running calls are left when these end.
            let idle = shard.delegations.lose_wake_ups().idle;
            drop(shard);
            self.leave(idle, DelegationEvent::Recalled);
        }
    }

    /// Recalls cannot arrive any more, or one may have been missed.
    pub(in crate::affinity) fn lose_wake_ups(&self) {
        let seen = self.wake_ups_seen.take().unwrap_or_default();
        for mut shard in self.shards.parts() {
            shard.routes.lose_wake_ups();
            let lost = shard.delegations.lose_wake_ups();
            drop(shard);
            self.leave(lost.idle, DelegationEvent::Broken);
            for call in lost.running {
                metrics::delegation(DelegationEvent::Broken);
                call.keep_without_wake_ups(seen);
            }
        }
    }

    fn sweep(&self) {
        for mut shard in self.shards.parts() {
            let now = boot_now();
            shard.routes.sweep(now);
            let unused = shard.delegations.sweep(now);
            drop(shard);
            self.leave(unused, DelegationEvent::Unused);
        }
    }

    /// Leaves turns by dropping them, outside of all locks.
    fn leave(&self, turns: impl IntoIterator<Item = Box<DelegatedTurn>>, why: DelegationEvent) {
        for turn in turns {
            metrics::delegation(why);
            drop(turn);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let mut shards = self.shards.parts();
        shards.all(|shard| shard.delegations.is_empty() && shard.routes.is_empty())
    }

    /// The table may not be empty.
    pub(super) fn ask_for_maintenance(&self) {
        if !self.is_maintained.load(Ordering::Acquire)
            && !self.is_maintained.swap(true, Ordering::AcqRel)
        {
            self.is_filled.notify_one();
        }
    }

    /// Looks after the wake-ups of this worker, and sweeps out what is unused, until it is dropped.
    pub(in crate::affinity) async fn maintain(&self, store: &Store, worker: &WorkerId) {
        loop {
            self.is_filled.notified().await;
            let (mut path, mut looked) = (None, boot_now());
            let mut looks = interval(LOOK_EVERY);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for look in 1_u32.. {
                looks.tick().await;
                let is_open = self.look_after_wake_ups(&mut path, store.event_path(worker));
                if is_open {
                    self.wake_ups_seen.store(looked);
                }
                looked = boot_now();
                if look % SWEEP_EVERY == 0 {
                    self.sweep();
                    if self.is_unused() {
                        break;
                    }
                }
            }
        }
    }

    /// Whether the table is empty and so needs no maintenance until a call asks for it.
    fn is_unused(&self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.is_maintained.store(false, Ordering::Release);
        // A call may have come in between.
        if !self.is_empty() {
            self.is_maintained.store(true, Ordering::Release);
            return false;
        }
        true
    }

    /// Whether the wake-ups arrive, as far as this process has read. After a pause of the process, the end of their
    /// connection may not be read yet, so this holds for the time of the look before.
    fn look_after_wake_ups(&self, path: &mut Option<EventPath>, now: Option<EventPath>) -> bool {
        if path.is_some() && *path != now {
            tracing::debug!("recalls may have been missed; delegated turns are left");
            self.lose_wake_ups();
        }
        *path = now;
        now.is_some()
    }
}
