//! The store as its users see it: which one it is, and the operations on one record.
//!
//! The files beside this one have the other operations: [`turns`] those that order calls, [`operate`] those on many
//! records, [`fleet`] the workers and their events, [`rate`] the fleet-wide limits, [`sealed`] values outside of records,
//! [`desired_state`] what operators want of the fleet, [`history`] what has happened to sessions.

mod desired_state;
mod fleet;
mod history;
mod open;
mod operate;
mod rate;
mod reaping;
mod requests;
mod room;
mod sealed;
mod session_access;
mod turns;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use metrics::Histogram;
use mooring_session::Refusal;
use mooring_session::names::{NameError, Problem, ServerName, SessionId};
use mooring_session::rules::{
    BindReply, BindRequest, ConfirmRequest, CreateReply, CreateRequest, EndReply, EndRequest,
    RebindReply, RebindRequest, RouteReply, RouteRequest, TouchReply, TouchRequest, UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::view::{BindingView, RecordView};
use mooring_traces::{Span, SpanKind, attribute};
use tokio::sync::watch;

pub use self::desired_state::DesiredStateError;
pub use self::open::{StoreOptions, StorePlace, WhenAway, open, open_with};
pub use self::reaping::{ClaimRefusal, ForgetOutcome, Reaper, jittered};
pub use self::room::{EvictionOutcome, RoomError};
pub use self::sealed::SEALED_BYTES_MAX;
pub use self::session_access::{DropGuard, SessionAccess, SessionTurn, TurnError};
use crate::desired_state::DesiredState;
use crate::embedded::EmbeddedStore;
use crate::error::StoreError;
use crate::fallback::{FallbackStore, Losses, MemoryTransition};
use crate::history::HistoryQueue;
use crate::key::{InitDigest, SessionKey};
use crate::lock;
use crate::redis::RedisStore;
use crate::status::{FollowedStatus, RedisServerView, StatusCell, StoreMode, StoreStatus};
use crate::transition::Get;

/// Longest initialize params in bytes. A server's result may be longer.
const INIT_BYTES_MAX: usize = 65_536;
/// How many TTLs of a session the initialize params that it names are kept.
const INIT_KEEP_TTLS: u64 = 2;

/// Runs an operation of the actual store; with a command's name, records its duration, and a span if a request that is
/// traced waits for it.
macro_rules! on_backend {
    ($self:ident.$operation:ident($($argument:expr),*)) => {
        match &*$self.backend {
            $crate::store::Backend::Embedded(store) => store.$operation($($argument),*).await,
            $crate::store::Backend::Redis(store, _) => store.$operation($($argument),*).await,
            $crate::store::Backend::Fallback(store) => store.$operation($($argument),*).await,
        }
    };
    ($command:expr, $self:ident.$($operation:tt)*) => {{
        let started = std::time::Instant::now();
        let span = $crate::store::begin_span($command, &$self.backend);
        let result = $crate::store::on_backend!($self.$($operation)*);
        $crate::store::record_duration($command, started);
        $crate::store::end_span(span, result.as_ref().err());
        result
    }};
}
use on_backend;

/// A store of session records.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Arc<Backend>,
    prefix: Arc<str>,
    session_ttl: Millis,
    history_queue: Arc<HistoryQueue>,
    worker_refusal: watch::Sender<Option<Refusal>>,
    desired_state: watch::Sender<Arc<DesiredState>>,
    knows_desired_state: Arc<AtomicBool>,
    /// Held while it is read or changed.
    desired_state_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
pub(crate) enum Backend {
    Embedded(EmbeddedStore),
    Redis(RedisStore, FollowedStatus),
    Fallback(FallbackStore),
}

impl Store {
    pub(crate) fn new(
        backend: Backend,
        prefix: &str,
        session_ttl: Millis,
        history_entries_max: usize,
    ) -> Self {
        let is_embedded = matches!(backend, Backend::Embedded(..));
        Self {
            backend: Arc::new(backend),
            prefix: prefix.into(),
            session_ttl,
            history_queue: Arc::new(HistoryQueue::new(history_entries_max)),
            worker_refusal: watch::Sender::new(None),
            desired_state: watch::Sender::default(),
            // A file or memory is never away.
            knows_desired_state: Arc::new(AtomicBool::new(is_embedded)),
            desired_state_lock: Arc::default(),
        }
    }

    /// The kind of store, in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &*self.backend {
            Backend::Embedded(..) => "embedded",
            _ => "redis",
        }
    }

    /// The Redis in use; none for another store.
    #[must_use]
    pub fn redis_server(&self) -> Option<RedisServerView> {
        match &*self.backend {
            Backend::Embedded(..) => None,
            Backend::Redis(store, _) => Some(store.server()),
            Backend::Fallback(store) => Some(store.redis().server()),
        }
    }

    /// The losses of outages. A store without a fallback never has any.
    #[must_use]
    pub fn losses(&self) -> Losses {
        match &*self.backend {
            Backend::Fallback(store) => store.losses(),
            _ => Losses::none(),
        }
    }

    /// The key of an MCP session in this store.
    #[must_use]
    pub fn session_key(&self, id: &SessionId) -> SessionKey {
        SessionKey::mcp(&self.prefix, id)
    }

    /// Parses a session's key from another gateway; none if it is not a key of this store.
    #[must_use]
    pub fn key_named(&self, text: &str) -> Option<SessionKey> {
        SessionKey::named(&self.prefix, text.as_bytes())
    }

    /// The key of a code session in this store; `id` is what its record will hold.
    ///
    /// # Errors
    /// See [`SessionKey::code`].
    pub fn code_key(
        &self,
        server: &ServerName,
        user_slug: &str,
        language: &str,
        id: &SessionId,
    ) -> Result<SessionKey, NameError> {
        SessionKey::code(&self.prefix, server, user_slug, language, id)
    }

    /// The key of an agent session in this store; `id` is what its record will hold.
    ///
    /// # Errors
    /// See [`SessionKey::agent`].
    pub fn agent_key(
        &self,
        server: &ServerName,
        user_slug: &str,
        parent_part: &str,
        id: &SessionId,
    ) -> Result<SessionKey, NameError> {
        SessionKey::agent(&self.prefix, server, user_slug, parent_part, id)
    }

    /// Whether the store is all there, without waiting.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        self.status_cell().get()
    }

    /// Whether replies are currently served without the configured store, as the header `Mooring-Degraded` reports.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.status().mode == StoreMode::Degraded
    }

    /// Creates the session, or finds it.
    ///
    /// # Errors
    /// Refused: `DENIED`, `ERR` for another id, with `Revival::Refused` `ENDED` or `NOSESSION`, and at the cap `LIMIT` with
    /// the key of the least recently used session, which [`named_key`](Self::named_key) makes a key again.
    pub async fn create(
        &self,
        key: &SessionKey,
        request: &CreateRequest,
    ) -> Result<CreateReply, StoreError> {
        self.run(key, request).await
    }

    /// Records a use, and sets the given fields.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `ENDED`, `DENIED`, `LIMIT`.
    pub async fn touch(
        &self,
        key: &SessionKey,
        request: &TouchRequest,
    ) -> Result<TouchReply, StoreError> {
        self.run(key, request).await
    }

    /// The record, tombstones included. Touches nothing and checks no principal.
    ///
    /// # Errors
    /// Refused: `NOSESSION`.
    pub async fn get(&self, key: &SessionKey) -> Result<RecordView, StoreError> {
        self.run(key, &Get).await
    }

    /// Ends the session. Ending twice is no error.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `DENIED`, `BUSY`.
    pub async fn end(
        &self,
        key: &SessionKey,
        request: &EndRequest,
    ) -> Result<EndReply, StoreError> {
        self.run(key, request).await
    }

    /// Where the session's calls to a server go: the hot path.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `ENDED`, `DENIED`.
    pub async fn route(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
    ) -> Result<RouteReply, StoreError> {
        self.run(key, request).await
    }

    /// Binds a server, or finds it bound.
    ///
    /// # Errors
    /// Refused: `NOSESSION`, `ENDED`, `DENIED`, `LIMIT`, `BUSY`, `ERR` without instances.
    pub async fn bind(
        &self,
        key: &SessionKey,
        request: &BindRequest,
    ) -> Result<BindReply, StoreError> {
        self.run(key, request).await
    }

    /// Confirms that a claim is initialized.
    ///
    /// # Errors
    /// Refused: `STALE` where the claim was lost, and the upstream session just made is to be deleted; `NOSESSION`,
    /// `ENDED`, `DENIED`.
    pub async fn confirm(
        &self,
        key: &SessionKey,
        request: &ConfirmRequest,
    ) -> Result<BindingView, StoreError> {
        self.run(key, request).await
    }

    /// Moves a binding from the epoch seen.
    ///
    /// # Errors
    /// Refused: `STALE` where it is not bound at all, `OWNED`; `NOSESSION`, `ENDED`, `DENIED`, `ERR` without instances.
    pub async fn rebind(
        &self,
        key: &SessionKey,
        request: &RebindRequest,
    ) -> Result<RebindReply, StoreError> {
        self.run(key, request).await
    }

    /// Removes a binding, or gives up a claim.
    ///
    /// # Errors
    /// Refused: `STALE` for another epoch or token; `NOSESSION`, `ENDED`, `DENIED`.
    pub async fn unbind(
        &self,
        key: &SessionKey,
        request: &UnbindRequest,
    ) -> Result<BindingView, StoreError> {
        self.run(key, request).await
    }

    /// Keeps the initialize params of a client build for twice the TTL of sessions. Called at every `initialize`, which
    /// is what renews them.
    ///
    /// # Errors
    /// Refused: `ERR` for params over 64 KiB.
    pub async fn put_init(&self, digest: &InitDigest, json: &str) -> Result<(), StoreError> {
        if json.len() > INIT_BYTES_MAX {
            return Err(StoreError::Refused(Refusal::Argument(NameError {
                what: "initialize params",
                problem: Problem::TooLong(INIT_BYTES_MAX),
            })));
        }
        let keep = self.session_ttl.times(INIT_KEEP_TTLS);
        on_backend!("SET", self.put_init(digest, json, keep))
    }

    /// Deletes the params with this digest. If that fails, they expire.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn delete_init(&self, digest: &InitDigest) -> Result<(), StoreError> {
        on_backend!("DEL", self.delete_init(digest))
    }

    /// The initialize params of a client build; none if they have expired.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn get_init(&self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        on_backend!("GET", self.get_init(digest))
    }

    async fn run<T: MemoryTransition>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        on_backend!(T::COMMAND, self.run(key, request))
    }

    fn status_cell(&self) -> &StatusCell {
        match &*self.backend {
            Backend::Embedded(store) => store.status(),
            Backend::Redis(_, followed) => &followed.cell,
            Backend::Fallback(store) => store.status(),
        }
    }
}

/// The span of a command that a request waits for.
fn begin_span(command: &'static str, backend: &Backend) -> Span {
    let mut span = Span::begin(command, SpanKind::Client);
    span.note(attribute::DB_OPERATION_NAME, command);
    span.note(
        attribute::DB_SYSTEM_NAME,
        match backend {
            Backend::Embedded(_) => "sqlite",
            Backend::Redis(..) | Backend::Fallback(_) => "redis",
        },
    );
    span
}

/// A refusal is an answer of the store: the session is gone, or another's.
fn end_span(mut span: Span, error: Option<&StoreError>) {
    match error {
        None => {}
        Some(StoreError::Refused(_)) => span.fail("refused"),
        Some(_) => span.fail("unavailable"),
    }
}

/// Records how long a command took, whatever came of it. A function around the command would hold its future twice.
fn record_duration(command: &'static str, started: Instant) {
    /// By command, of which there are few: a look-up among all metrics costs more than the record.
    static HISTOGRAMS: RwLock<Vec<(&str, Histogram)>> = RwLock::new(Vec::new());
    let seconds = started.elapsed().as_secs_f64();
    {
        let known = lock::read(&HISTOGRAMS);
        if let Some((_, histogram)) = known.iter().find(|(known, _)| *known == command) {
            return histogram.record(seconds);
        }
    }
    let histogram = metrics::histogram!("mooring_store_duration_seconds", "command" => command);
    histogram.record(seconds);
    let mut known = lock::write(&HISTOGRAMS);
    known.push((command, histogram));
}
