//! Shared services of all code servers of a process: the volume, the sandbox, the sessions of the fleet, and the limits
//! on concurrent work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mooring_sandbox::{Options, ProbeError, Sandbox, Tier};
use mooring_session::names::ServerName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use crate::catalog::{Catalog, MountableServer};
use crate::patterns::Patterns;
use crate::proxy::AddressPolicy;
use crate::records::{Records, keep};
use crate::skills::Skills;
use crate::tokens::{TokenKey, TokenKeyError};
use crate::volume::{SecondProcess, Volume, VolumeOptions, VolumeProblem};
use mooring_settings::{CodeServerSettings, CodeSettings, OnDenoAbsent};
use mooring_store::{SessionAccess, SessionKey};

/// How many runs may wait for each run slot.
const WAITING_PER_SLOT: usize = 16;
/// Longest wait for a slot.
const SLOT_WITHIN: Duration = Duration::from_secs(30);
/// Most calls of file tools that use the disk at the same time.
const FILE_CALLS_AT_ONCE: usize = 64;
/// Most sessions that are counted as active.
const ACTIVE_MAX: usize = 100_000;

/// Why the code servers could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CodeServersError {
    /// The patterns could not be compiled.
    #[error("the patterns of dangerous code could not be compiled")]
    Patterns(#[from] regex::Error),
    /// The key of the maps of tokens cannot be used.
    #[error("the key that maps of tokens are encrypted with cannot be used")]
    TokenKey(#[from] TokenKeyError),
    /// The thread that opens the volume and tests the sandbox panicked.
    #[error("the volume and sandbox checks could not run")]
    Thread(#[from] tokio::task::JoinError),
}

/// Sessions would live longer than the volume keeps them.
#[derive(Debug, thiserror::Error)]
#[error(
    "sessions of code servers would live for {ttl_seconds} seconds; the volume was opened for at most {present_seconds}: \
     restart the gateway"
)]
pub struct SessionTtlGrowth {
    ttl_seconds: u64,
    present_seconds: u64,
}

/// The volume and the stores on it.
#[derive(Clone, Debug)]
pub(crate) struct CodeStorage {
    /// The sessions' files.
    pub(crate) volume: Volume,
    /// Records of runs.
    pub(crate) records: Records,
    /// Skills.
    pub(crate) skills: Skills,
}

/// What all code servers of a process share. After a reload, most of it is shared with those before.
#[derive(Clone, Debug)]
pub struct Services {
    pub(crate) sessions: Arc<dyn SessionAccess>,
    /// The storage on the volume, or why it cannot be used.
    pub(crate) storage: Result<CodeStorage, VolumeProblem>,
    pub(crate) sandbox: Result<Arc<Sandbox>, Arc<ProbeError>>,
    /// Whether runs may be repeated.
    pub(super) is_replay_enabled: bool,
    /// Where code may connect to that may use the network.
    pub(super) addresses: Arc<AddressPolicy>,
    /// The key that encrypts token maps; none if they are not encrypted.
    pub(super) token_key: Option<TokenKey>,
    pub(crate) patterns: Patterns,
    /// The same for servers that let code use the network.
    pub(super) patterns_with_raw_http: Patterns,
    pub(crate) on_deno_absent: OnDenoAbsent,
    /// The longest time to live of a session of any server: what the volume sweeps by.
    pub(crate) session_ttl_max: Duration,
    /// The shortest: sessions in use are kept alive well within it.
    pub session_ttl_min: Duration,
    /// The tools of other servers.
    pub(super) catalog: Catalog,
    /// The code servers, whose tools code cannot call.
    pub(super) ids: Arc<[ServerName]>,
    /// Cancelled when the process stops: every run then ends.
    pub(super) stopping: CancellationToken,
    run_slots: Arc<RunSlots>,
    file_calls: Arc<Semaphore>,
    active: Arc<Active>,
    answer_timeout: Duration,
}

impl Services {
    /// Opens the volume and proves the sandbox.
    pub(super) async fn open(
        settings: &CodeSettings,
        servers: &[(ServerName, CodeServerSettings)],
        mountable: Vec<MountableServer>,
        addresses: AddressPolicy,
        answer_timeout: Duration,
        sessions: Arc<dyn SessionAccess>,
    ) -> Result<Self, CodeServersError> {
        let patterns = Patterns::new(
            settings.patterns.python.as_deref(),
            settings.patterns.typescript.as_deref(),
        )?;
        let token_key = match &settings.tokens_key_file {
            Some(path) => Some(TokenKey::read(path)?),
            None => None,
        };
        let session_ttls = || servers.iter().map(|(_, server)| server.policy.session_ttl);
        let session_ttl_max = session_ttls().max().unwrap_or_default();
        let volume = VolumeOptions {
            base_dir: settings.base_dir.clone(),
            session_ttl: session_ttl_max,
            second_process: SecondProcess::default(),
        };
        let options = Options {
            python: settings.runtimes.python.clone(),
            deno: settings.runtimes.deno.clone(),
            warm_helpers: settings.warm_helpers,
            ..Options::new(settings.isolation)
        };
        let (volume, sandbox) = tokio::task::spawn_blocking(move || {
            (Volume::open(volume), Sandbox::probe(options).map(Arc::new))
        })
        .await?;
        if let Err(problem) = &volume {
            tracing::error!(base_dir = %settings.base_dir.display(), %problem, "code session volume unavailable");
        }
        log_self_test(&sandbox);
        let shared = volume.as_ref().ok().map(Volume::base_dir);
        let catalog_ttl = settings.records.catalog_ttl;
        let catalog = Catalog::new(mountable, shared, catalog_ttl, answer_timeout);
        Ok(Self {
            addresses: Arc::new(addresses),
            token_key,
            is_replay_enabled: settings.records.replay_enabled,
            storage: volume.map(|volume| CodeStorage {
                records: Records::new(
                    volume.clone(),
                    settings.records.clone(),
                    sessions.worker().clone(),
                ),
                skills: Skills::new(volume.clone()),
                volume,
            }),
            sessions,
            patterns_with_raw_http: patterns.with_raw_http(),
            patterns,
            on_deno_absent: settings.runtimes.on_deno_absent,
            session_ttl_max,
            session_ttl_min: session_ttls().min().unwrap_or_default(),
            ids: servers.iter().map(|(id, _)| id.clone()).collect(),
            catalog,
            stopping: CancellationToken::new(),
            run_slots: Arc::new(RunSlots::new(settings.runs_at_once.get())),
            file_calls: Arc::new(Semaphore::new(FILE_CALLS_AT_ONCE)),
            active: Arc::default(),
            answer_timeout,
            sandbox: sandbox.map_err(Arc::new),
        })
    }

    /// The same with these code servers and these servers whose tools code may call.
    ///
    /// # Errors
    /// [`SessionTtlGrowth`]: the volume would sweep sessions that still live.
    pub(super) fn with_servers(
        &self,
        settings: &CodeSettings,
        servers: &[(ServerName, CodeServerSettings)],
        mountable: Vec<MountableServer>,
    ) -> Result<Self, SessionTtlGrowth> {
        let session_ttls = || servers.iter().map(|(_, server)| server.policy.session_ttl);
        let session_ttl_max = session_ttls().max().unwrap_or_default();
        if session_ttl_max > self.session_ttl_max {
            return Err(SessionTtlGrowth {
                ttl_seconds: session_ttl_max.as_secs(),
                present_seconds: self.session_ttl_max.as_secs(),
            });
        }
        let storage = self.storage.as_ref().ok();
        let catalog = self.catalog.with_servers(
            mountable,
            storage.map(|kept| kept.volume.base_dir()),
            settings.records.catalog_ttl,
            self.answer_timeout,
        );
        Ok(Self {
            catalog,
            session_ttl_min: session_ttls().min().unwrap_or_default(),
            ids: servers.iter().map(|(id, _)| id.clone()).collect(),
            ..self.clone()
        })
    }

    /// What is kept on the volume.
    pub(crate) fn storage(&self) -> Result<&CodeStorage, Failure> {
        self.storage
            .as_ref()
            .map_err(|problem| Failure::Volume(problem.clone()))
    }

    /// The sandbox, if it passed its self-test.
    pub(super) fn sandbox(&self) -> Result<&Arc<Sandbox>, Failure> {
        self.sandbox
            .as_ref()
            .map_err(|error| Failure::SandboxUnavailable(error.to_string()))
    }

    /// A slot for a run.
    pub(super) async fn run_slot(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.run_slots.take().await
    }

    /// A slot for a call of a file tool.
    pub(super) async fn file_call(&self) -> Result<OwnedSemaphorePermit, Failure> {
        wait_for_slot(&self.file_calls).await
    }

    /// Ends the records of runs that died with their gateway, and removes old ones, until it is stopped.
    pub async fn keep_records(self: Arc<Self>, interval: Duration) {
        if let Ok(CodeStorage { records, .. }) = &self.storage {
            keep(records, &self.ids, self.sessions.store(), interval).await;
        }
    }

    /// A session is used.
    pub(super) fn note_use(&self, key: &SessionKey) {
        self.active.note(key, self.session_ttl_max);
    }

    /// How many sessions this process has used within their time to live.
    pub fn sessions_active(&self) -> usize {
        self.active.count(self.session_ttl_max)
    }
}

fn log_self_test(sandbox: &Result<Arc<Sandbox>, ProbeError>) {
    match sandbox {
        Ok(sandbox) if sandbox.tier() == Tier::Degraded => {
            tracing::warn!(tier = %sandbox.tier(), layers = ?sandbox.layers(), "sandbox self-test passed without namespaces; docs/deploying.md lists the missing guarantees");
        }
        Ok(sandbox) => {
            tracing::info!(tier = %sandbox.tier(), layers = ?sandbox.layers(), "sandbox self-test passed");
        }
        Err(error) => tracing::error!(%error, "code cannot be run"),
    }
}

/// Slots for concurrent runs. A run without a slot waits in a bounded queue.
#[derive(Debug)]
struct RunSlots {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl RunSlots {
    fn new(at_once: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(at_once)),
            waiting: Semaphore::new(at_once.saturating_mul(WAITING_PER_SLOT)),
        }
    }

    async fn take(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(slot) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(slot);
        }
        let _waits = self
            .waiting
            .try_acquire()
            .map_err(|_| Failure::Overloaded)?;
        wait_for_slot(&self.running).await
    }
}

async fn wait_for_slot(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
    let slot = Arc::clone(slots).acquire_owned();
    match tokio::time::timeout(SLOT_WITHIN, slot).await {
        Ok(Ok(slot)) => Ok(slot),
        Ok(Err(_)) | Err(_) => Err(Failure::Overloaded),
    }
}

/// The sessions used lately. Nothing but a gauge depends on it.
#[derive(Debug, Default)]
struct Active(Mutex<HashMap<SessionKey, Instant>>);

impl Active {
    fn note(&self, key: &SessionKey, ttl: Duration) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= ACTIVE_MAX {
            used.retain(|_, at| at.elapsed() < ttl);
        }
        if used.len() < ACTIVE_MAX || used.contains_key(key) {
            used.insert(key.clone(), Instant::now());
        }
    }

    fn count(&self, ttl: Duration) -> usize {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, at| at.elapsed() < ttl);
        used.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_so_many_runs_wait_and_not_for_ever() {
        let places = Arc::new(RunSlots::new(1));
        let running = places.take().await.unwrap();
        let waiting: Vec<_> = (0..WAITING_PER_SLOT)
            .map(|_| {
                let places = Arc::clone(&places);
                tokio::spawn(async move { places.take().await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let started = tokio::time::Instant::now();
        assert!(matches!(places.take().await, Err(Failure::Overloaded)));
        assert_eq!(started.elapsed(), Duration::ZERO, "the queue is full");
        for waits in waiting {
            assert!(matches!(waits.await.unwrap(), Err(Failure::Overloaded)));
        }
        assert_eq!(started.elapsed(), SLOT_WITHIN);
        drop(running);
        drop(places.take().await.unwrap());
    }
}
