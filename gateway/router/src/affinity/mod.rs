//! Session affinity: which upstream session carries a client's session, and what happens when it is lost.
//!
//! Invariants: no state of a session is kept here. Every worker reads the record in the store before every dispatch,
//! and every change is one fenced command of the store; so any worker may be killed at any moment, and two workers
//! that see one loss make one new upstream session between them.

mod active_bindings;
mod admission;
mod cleaning;
mod close;
mod establish;
mod named_session;
mod open;
mod owned;
mod params;
mod pauses;
mod reaper;
mod recover;
mod resolve;
mod restored_state;
mod session_access;
mod stream;
mod turn;
mod wake_ups;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mooring_session::names::WorkerId;
use mooring_session::time::Millis;

pub use active_bindings::{ActiveBindings, BindingHolder, InFlight, InFlightKind};
pub use close::CloseOutcome;
pub use named_session::SessionStart;
pub use open::{InitializeRequest, OpenError, OpenedSession, SubscriptionState};
pub use owned::{
    BeatTime, ConnectionKey, ConnectionSettings, Connector, OwnedConnections, stop_idle_processes,
    sweep_owned, watch_owners,
};
pub use reaper::reap;
pub use recover::Loss;
pub use resolve::{RebindNotice, ResolveError, ResolvedBinding};
pub use stream::{HoldError, StreamHold, StreamKind};
pub use turn::{Turn, Withdrawal};
pub use wake_ups::wake_waiters;

use self::wake_ups::Waiters;
use mooring_protocol::ids::gateway_id;
use mooring_store::Store;
pub use mooring_store::{Session, TurnError};
use mooring_upstream::{Client, Servers};

/// Routes the messages of sessions: creates and ends sessions, resolves and moves their bindings. One per worker, cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct SessionRouter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    client: Client,
    servers: Arc<Servers>,
    owned_connections: OwnedConnections,
    worker: WorkerId,
    options: SessionRouterOptions,
    active_bindings: ActiveBindings,
    waiters: Waiters,
    sequence: AtomicU64,
}

/// How long things may take, and how many there may be.
#[derive(Clone, Debug)]
pub struct SessionRouterOptions {
    /// How long a session may be idle.
    pub session_ttl: Millis,
    /// Most active sessions of one principal; none for no cap.
    pub sessions_max: Option<NonZeroU64>,
    /// Most sessions that a principal may begin within a minute; none for no limit.
    pub initializes_per_minute: Option<NonZeroU64>,
    /// How long one attempt to initialize upstream may take before another may begin.
    pub claim_lease: Millis,
    /// Longest wait of a call for its turn.
    pub turn_wait_max: Duration,
    /// Longest wait for an instance's answer to a request of the gateway's own.
    pub answer_timeout: Duration,
    /// What every key of the store begins with.
    pub key_prefix: Box<str>,
}

impl SessionRouter {
    /// The service of this worker.
    #[must_use]
    pub fn new(
        store: Store,
        client: Client,
        servers: Arc<Servers>,
        owned_connections: OwnedConnections,
        worker: WorkerId,
        options: SessionRouterOptions,
    ) -> Self {
        let idle = Duration::from_millis(options.session_ttl.get());
        Self(Arc::new(Shared {
            store,
            client,
            servers,
            owned_connections,
            worker,
            active_bindings: ActiveBindings::new(idle),
            waiters: Waiters::default(),
            options,
            sequence: AtomicU64::new(0),
        }))
    }

    /// Where records live.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// How instances are reached.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The configured servers.
    #[must_use]
    pub fn servers(&self) -> &Servers {
        &self.0.servers
    }

    /// What this worker owns, and how it reaches what others own.
    #[must_use]
    pub fn owned_connections(&self) -> &OwnedConnections {
        &self.0.owned_connections
    }

    /// This worker.
    #[must_use]
    pub fn worker(&self) -> &WorkerId {
        &self.0.worker
    }

    /// The bindings that this worker uses.
    #[must_use]
    pub fn active_bindings(&self) -> &ActiveBindings {
        &self.0.active_bindings
    }

    /// Those who wait here for the claims of other workers.
    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }

    /// How long things may take, and how many there may be.
    #[must_use]
    pub fn options(&self) -> &SessionRouterOptions {
        &self.0.options
    }

    /// The JSON text of an id for a request of the gateway's own, unique across workers and restarts.
    #[must_use]
    pub fn next_id(&self) -> String {
        let sequence = self.0.sequence.fetch_add(1, Ordering::Relaxed);
        // A boot id is hexadecimal, which always makes an id; the fallback is one too.
        gateway_id(self.0.worker.boot(), sequence)
            .unwrap_or_else(|| format!("\"gateway:{sequence}\""))
    }
}
