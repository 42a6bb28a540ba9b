//! The store's mode, as shown by readyz, the gauge `mooring_degraded` and the reply header.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How the store serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// The store of the settings serves everything.
    Normal,
    /// Redis is away or being reconciled, and memory serves what it safely can. Or the file cannot be written, and a
    /// copy in memory serves everything, for this process only.
    Degraded,
    /// Redis is away, and nothing is served from memory.
    Unavailable,
}

/// Who gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The store of the settings.
    Store,
    /// This gateway's memory, while the store is away: no other gateway shares it, and it assigns its own numbers.
    Memory,
}

/// The mode, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// How the store serves.
    pub mode: StoreMode,
    /// Since when.
    pub since: SystemTime,
}

/// The Redis in use, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisServerView {
    /// How it is found: by the `url`, as the first primary of the `list`, by a `sentinel`, or as the primaries of a
    /// `cluster`.
    pub discovery: &'static str,
    /// How it is used: by the `module`, or by a `script`.
    pub way: &'static str,
    /// Its address; of a cluster, those of its primaries; none while there is no connection.
    pub address: Option<String>,
    /// Why there is no connection, or why the sentinels name no server that can be used in its place, without credentials.
    pub problem: Option<String>,
    /// The primaries of a cluster; empty for one server.
    pub primaries: Vec<RedisPrimaryView>,
}

/// A primary of a cluster, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisPrimaryView {
    /// Its address.
    pub address: String,
    /// Why there is no connection to it; none if there is one.
    pub problem: Option<String>,
}

/// The current status; each change is logged and set in the gauge once.
#[derive(Debug)]
pub(super) struct StatusCell(watch::Sender<StoreStatus>);

impl StatusCell {
    pub(super) fn new(mode: StoreMode) -> Self {
        show(mode);
        Self(watch::Sender::new(StoreStatus {
            mode,
            since: SystemTime::now(),
        }))
    }

    pub(super) fn get(&self) -> StoreStatus {
        *self.0.borrow()
    }

    pub(super) fn set(&self, mode: StoreMode) {
        let is_changed = self.0.send_if_modified(|status| {
            let is_changed = status.mode != mode;
            if is_changed {
                *status = StoreStatus {
                    mode,
                    since: SystemTime::now(),
                };
            }
            is_changed
        });
        if is_changed {
            show(mode);
            match mode {
                StoreMode::Normal => tracing::info!("the store serves everything again"),
                StoreMode::Degraded => {
                    tracing::warn!("the store is away: memory serves what is safe to serve");
                }
                StoreMode::Unavailable => tracing::warn!("the store is away: nothing is served"),
            }
        }
    }
}

/// A status that a task keeps up to date; the task ends with it.
#[derive(Debug)]
pub(super) struct FollowedStatus {
    pub(super) cell: Arc<StatusCell>,
    pub(super) follower: JoinHandle<()>,
}

impl Drop for FollowedStatus {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

fn show(mode: StoreMode) {
    let is_degraded = mode != StoreMode::Normal;
    metrics::gauge!("mooring_degraded").set(if is_degraded { 1.0 } else { 0.0 });
}
