//! Session affinity: which upstream session serves a client's session, and what happens when it is lost.
//!
//! Invariants: gateways keep no session state. Every gateway reads the record in the store before every dispatch, unless
//! the store has delegated the turn or the route to it, and would recall that before a change takes effect elsewhere.
//! Every change is one fenced command of the store. So any gateway may be killed at any time, and gateways that see the
//! same loss create only one new upstream session.

mod active_bindings;
mod admission;
mod beats;
mod binding_spans;
mod boot_clock;
mod cancellation;
mod cleaning;
mod close;
mod configuration;
mod configured;
mod continued_session;
mod establish;
mod events;
mod history;
mod known_sessions;
mod moving;
mod named_session;
mod open;
mod operators;
mod owned;
mod params;
mod pauses;
mod probes;
mod readiness;
mod reaper;
mod removal;
mod resolve;
mod resolving;
mod restored_state;
mod session_access;
mod stream;
#[cfg(test)]
mod test_router;
mod turn;
mod wake_ups;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;
use mooring_session::view::RecordView;
use mooring_session::workers::Beat;
use thread_local::ThreadLocal;

pub use active_bindings::{ActiveBindings, BindingHolder, InFlight, InFlightKind};
pub use cancellation::{CancelledRequest, publish_requests};
pub use close::CloseOutcome;
pub use configuration::{RoutedServers, SessionLimits};
pub use establish::init_digest;
pub use events::wake_waiters;
pub use known_sessions::{ContinuedSession, SessionBeginning};
pub use moving::{MoveError, MovePreview, MoveRequest, MoveTiming, MovedBinding};
pub use named_session::SessionStart;
pub use open::{InitializeRequest, OpenError, OpenedSession, SubscriptionState};
pub use operators::{DrainProgress, follow_operators};
pub use owned::{
    BeatTime, ConnectionKey, ConnectionSettings, Connector, OwnedConnections, hand_over_owned,
    stop_idle_processes, sweep_owned, watch_owners,
};
pub use readiness::probe_instances;
pub use reaper::reap;
pub use resolve::{RebindNotice, ResolveError};
pub(crate) use resolve::{RouterErrors, ServerInstances, lacks_reason, now};
pub(crate) use resolving::Resolving;
pub use stream::{HoldError, StreamHold, StreamKind};
pub use turn::{Turn, Withdrawal};
pub use wake_ups::BindingWatch;

use self::beats::AcknowledgedBeats;
use self::binding_spans::BindingSpans;
use self::boot_clock::boot_now;
use self::configuration::RouterConfiguration;
use self::known_sessions::ContinuedSessions;
use self::stream::OpenStreams;
use self::turn::{DelegationTable, HeldTurns};
use self::wake_ups::Waiters;
use crate::departure::Departure;
use crate::in_flight_requests::InFlightRequests;
pub use mooring_delivery::Loss;
use mooring_protocol::ids::gateway_id;
pub use mooring_store::{Session, TurnError};
use mooring_store::{SessionKey, Store, StoreError};

use mooring_upstream::{Caller, Client};

/// Routes the messages of sessions: creates and ends sessions, resolves and moves their bindings. One per gateway,
/// cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionRouter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    client: Client,
    configuration: ArcSwap<RouterConfiguration>,
    owned_connections: OwnedConnections,
    worker: WorkerId,
    options: SessionRouterOptions,
    active_bindings: ActiveBindings,
    waiters: Waiters,
    delegations: Arc<DelegationTable>,
    beats: Arc<AcknowledgedBeats>,
    open_streams: OpenStreams,
    in_flight_requests: InFlightRequests,
    binding_spans: BindingSpans,
    continued_sessions: ContinuedSessions,
    /// Each thread has its own: a turn is kept by the thread that took it.
    held_turns: ThreadLocal<Arc<HeldTurns>>,
    departure: Departure,
    sequence: AtomicU64,
}

/// Limits and timeouts of a session router.
#[derive(Clone, Debug)]
pub struct SessionRouterOptions {
    /// How long a session may be idle.
    pub session_ttl: Millis,
    /// Time limit of one attempt to initialize upstream, after which another may begin.
    pub claim_lease: Millis,
    /// Longest wait of a call for its turn.
    pub turn_wait_max: Duration,
    /// The lease of delegated turns; zero if turns are not to be delegated.
    pub delegation_lease: Millis,
    /// Longest wait for an instance's answer to a gateway request.
    pub answer_timeout: Duration,
    /// The prefix of all keys in the store.
    pub key_prefix: Box<str>,
}

impl SessionRouter {
    /// The router of this gateway.
    #[must_use]
    pub fn new(
        store: Store,
        client: Client,
        servers: RoutedServers,
        owned_connections: OwnedConnections,
        worker: WorkerId,
        options: SessionRouterOptions,
        limits: SessionLimits,
    ) -> Self {
        let idle = Duration::from_millis(options.session_ttl.get());
        Self(Arc::new(Shared {
            store,
            client,
            configuration: RouterConfiguration::new(servers, limits),
            owned_connections,
            worker,
            active_bindings: ActiveBindings::new(idle),
            waiters: Waiters::default(),
            delegations: DelegationTable::new(options.delegation_lease, options.session_ttl),
            beats: Arc::default(),
            open_streams: OpenStreams::default(),
            in_flight_requests: InFlightRequests::default(),
            binding_spans: BindingSpans::default(),
            continued_sessions: ContinuedSessions::default(),
            held_turns: ThreadLocal::new(),
            options,
            departure: Departure::default(),
            sequence: AtomicU64::new(0),
        }))
    }

    /// The store of session records.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The HTTP client to instances.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The connections that this gateway owns, and its access to those of peers.
    #[must_use]
    pub fn owned_connections(&self) -> &OwnedConnections {
        &self.0.owned_connections
    }

    /// The id of this gateway.
    #[must_use]
    pub fn worker(&self) -> &WorkerId {
        &self.0.worker
    }

    /// The bindings that this gateway uses.
    #[must_use]
    pub fn active_bindings(&self) -> &ActiveBindings {
        &self.0.active_bindings
    }

    /// The calls that wait here for other gateways' claims or for turns, and the streams that wait for bindings.
    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }

    /// The turns that the store has delegated to this gateway.
    fn delegations(&self) -> &Arc<DelegationTable> {
        &self.0.delegations
    }

    /// Tells the store that this gateway is alive.
    ///
    /// # Errors
    /// See [`Store::beat`].
    pub async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        let sent_at = boot_now();
        self.store().beat(beat).await?;
        self.0.beats.note(sent_at, beat.ttl);
        Ok(())
    }

    /// Whether this gateway leaves the fleet.
    #[must_use]
    pub fn departure(&self) -> &Departure {
        &self.0.departure
    }

    /// This gateway drains: it leaves its delegated turns, and asks for no more.
    pub fn stop_delegations(&self) {
        self.delegations().close();
    }

    /// This gateway does not drain any more: it asks for delegated turns again.
    pub fn resume_delegations(&self) {
        self.delegations().open();
    }

    /// The sessions that were opened in their clients' names.
    fn continued_sessions(&self) -> &ContinuedSessions {
        &self.0.continued_sessions
    }

    /// The session has ended here: its delegated turns are left, and its bindings are not counted any more.
    fn forget_session(&self, key: &SessionKey, record: &RecordView) {
        self.continued_sessions().forget(key);
        self.active_bindings().forget(key, record);
        for binding in &record.bindings {
            self.delegations().recall(key, &binding.server);
        }
    }

    /// The streams that are open here.
    fn open_streams(&self) -> &OpenStreams {
        &self.0.open_streams
    }

    /// The client requests that this gateway has in flight.
    #[must_use]
    pub fn in_flight_requests(&self) -> &InFlightRequests {
        &self.0.in_flight_requests
    }

    /// The turns of this thread that have no task.
    fn held_turns(&self) -> &Arc<HeldTurns> {
        self.0.held_turns.get_or_default()
    }

    /// The limits and timeouts.
    #[must_use]
    pub fn options(&self) -> &SessionRouterOptions {
        &self.0.options
    }

    /// The JSON text of an id for a gateway request, unique across gateways and restarts.
    #[must_use]
    pub fn next_id(&self) -> String {
        let sequence = self.0.sequence.fetch_add(1, Ordering::Relaxed);
        // A boot id is hexadecimal, so this always succeeds.
        gateway_id(self.0.worker.boot(), sequence)
            .unwrap_or_else(|| format!("\"gateway:{sequence}\""))
    }
}

/// The caller of a session's request.
#[must_use]
pub fn caller_of(session: &Session) -> Caller<'_> {
    Caller {
        principal: &session.principal,
        teams: &session.teams,
        session_digest: Some(&session.digest),
        token: session.token.as_ref(),
        memory: session.usage.as_ref().map(|usage| usage.replies()),
    }
}
