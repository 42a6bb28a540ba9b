//! Opening the store that the settings name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::time::Millis;

use super::{Backend, Store};
use crate::clock::Clock;
use crate::embedded::EmbeddedStore;
use crate::error::OpenError;
use crate::fallback::FallbackStore;
use crate::redis::{LinkState, RedisStore};
use crate::status::{FollowedStatus, StatusCell, StoreMode};
use mooring_settings::{
    AffinitySettings, ModuleUse, OnUnavailable, RedisUrl, StoreLocation, StoreSettings,
};

/// Which store, and how it is used.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Which store.
    pub place: StorePlace,
    /// What every key starts with; ends with a colon.
    pub key_prefix: String,
    /// Longest wait for one command of Redis.
    pub command_timeout: Duration,
    /// The TTL of sessions; data that they need is kept longer.
    pub session_ttl: Duration,
    /// Most entries of a session's history; 0 if none are kept.
    pub history_entries_max: usize,
}

/// The location of records.
#[derive(Clone, Debug)]
pub enum StorePlace {
    /// In this process's memory.
    Memory,
    /// In a SQLite file on this machine.
    Embedded {
        /// The file; created with its directory if it is missing.
        path: PathBuf,
    },
    /// In a Redis.
    Redis {
        /// Its URL, credentials included.
        url: RedisUrl,
        /// What happens while it is away.
        when_away: WhenAway,
        /// Whether its module is used.
        module: ModuleUse,
    },
}

/// What happens while Redis is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenAway {
    /// Memory serves what it safely can.
    Fallback,
    /// Every command is answered with `UnavailableReason`.
    Fail,
}

impl StoreOptions {
    /// The options from the settings.
    #[must_use]
    pub fn of(settings: &StoreSettings, affinity: &AffinitySettings) -> Self {
        Self {
            place: match &settings.location {
                StoreLocation::Embedded { path } => StorePlace::Embedded { path: path.clone() },
                StoreLocation::Redis(url) => StorePlace::Redis {
                    url: url.clone(),
                    when_away: match settings.on_unavailable {
                        OnUnavailable::Fallback => WhenAway::Fallback,
                        OnUnavailable::Fail => WhenAway::Fail,
                    },
                    module: settings.module,
                },
            },
            key_prefix: settings.key_prefix.clone(),
            command_timeout: settings.command_timeout,
            session_ttl: affinity.session_ttl,
            history_entries_max: affinity.history_entries_max,
        }
    }
}

/// Opens the store that the settings name. See [`open_with`].
///
/// # Errors
/// See [`open_with`].
pub async fn open(
    settings: &StoreSettings,
    affinity: &AffinitySettings,
) -> Result<Store, OpenError> {
    open_with(&StoreOptions::of(settings, affinity)).await
}

/// Opens a store.
///
/// # Errors
/// The file cannot be used; Redis was reached and has no module or refuses this client; or it cannot be reached and
/// [`WhenAway::Fail`] was chosen. With [`WhenAway::Fallback`] an unreachable Redis is no error: the store starts degraded.
pub async fn open_with(options: &StoreOptions) -> Result<Store, OpenError> {
    let prefix = &options.key_prefix;
    let backend = match &options.place {
        StorePlace::Memory => Backend::Embedded(EmbeddedStore::in_memory(Clock::system(), prefix)?),
        StorePlace::Embedded { path } => {
            Backend::Embedded(EmbeddedStore::open(path, Clock::system(), prefix)?)
        }
        StorePlace::Redis {
            url,
            when_away,
            module,
        } => {
            let timeout = options.command_timeout;
            let redis = match module {
                ModuleUse::Required => RedisStore::open(url, prefix, timeout).await?,
                ModuleUse::Unused => RedisStore::open_scripted(url, prefix, timeout).await?,
            };
            match when_away {
                WhenAway::Fallback => {
                    Backend::Fallback(FallbackStore::new(redis, options.command_timeout, prefix))
                }
                WhenAway::Fail => without_fallback(redis)?,
            }
        }
    };
    Ok(Store::new(
        backend,
        &options.key_prefix,
        Millis::from(options.session_ttl),
        options.history_entries_max,
    ))
}

fn without_fallback(redis: RedisStore) -> Result<Backend, OpenError> {
    let mut link = redis.watch();
    if let LinkState::Down(reason) = &*link.borrow_and_update() {
        return Err(reason.at(redis.address()));
    }
    let cell = Arc::new(StatusCell::new(StoreMode::Normal));
    let shown = Arc::clone(&cell);
    let follower = tokio::spawn(async move {
        while link.changed().await.is_ok() {
            match *link.borrow_and_update() {
                LinkState::Up(_) => shown.set(StoreMode::Normal),
                LinkState::Down(_) => shown.set(StoreMode::Unavailable),
                LinkState::Reconnecting => {}
            }
        }
    });
    Ok(Backend::Redis(redis, FollowedStatus { cell, follower }))
}
