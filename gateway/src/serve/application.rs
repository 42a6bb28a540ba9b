//! Builds the shared state of all requests from settings and parts that were opened before: at the start, and at each
//! reload.
//!
//! Invariant: what a reload does not change is the same as before, also in memory: servers with their health and
//! connections, the usage of each user, keys and tokens.

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;
use tokio_util::sync::CancellationToken;

use super::own_servers::{admin_ids, admin_servers, agents, code_servers};
use super::previous_app::{PreviousApp, unchanged};
use super::servers::UpstreamCredentials;
use super::user_limits::{request_rates, stranger_rates, usages};
use super::{ServeError, servers, telemetry};
use crate::http::{App, OperatorPage, RequestBodies};
use crate::reload::ReloadHandle;
use crate::vault::Vault;
use mooring_admin::OperatorCache;
use mooring_identity::Authenticator;
use mooring_peers::PeerClient;
use mooring_peers::fleet::{CallerSigner, KeyRing, SealKey, UserDigests};
use mooring_pipeline::group::Groups;
use mooring_pipeline::hooks::CallHooks;
use mooring_pipeline::legacy::LegacyClients;
use mooring_pipeline::policy::AccessPolicy;
use mooring_pipeline::{ClientStates, RemovedServers, RequestLog, ServerDirectory, ServingCore};
use mooring_router::affinity::{
    ConnectionSettings, OwnedConnections, RoutedServers, SessionLimits, SessionRouter,
    SessionRouterOptions,
};
use mooring_router::dispatch::{RelayOptions, Seals};
use mooring_router::pooled::Pool;
use mooring_settings::{self as settings, Settings};
use mooring_store::Store;
use mooring_traces::ExportOutlet;
use mooring_upstream::{
    Client, ClientError, HttpClient, HttpClientOptions, SilenceLimits, tls_config, with_causes,
};

/// The parts that were opened before.
pub(crate) struct GatewayParts {
    pub(crate) store: Store,
    pub(crate) worker: WorkerId,
    /// The client to other gateways; none without a fleet.
    pub(crate) peers: Option<PeerClient>,
    /// The fleet's keys, if there are any.
    pub(crate) ring: Option<KeyRing>,
    /// What callers may use.
    pub(crate) policy: Arc<AccessPolicy>,
    /// Reloads the settings; none in a process that cannot.
    pub(crate) reloads: Option<ReloadHandle>,
}

/// What all states of one process have in common.
struct CommonParts {
    session_router: SessionRouter,
    pool: Pool,
    request_log: Arc<RequestLog>,
    client_states: ClientStates,
    relay: RelayOptions,
    vault: Option<Arc<Vault>>,
    page: Option<Arc<OperatorPage>>,
    operator_cache: Arc<OperatorCache>,
    reloads: Option<ReloadHandle>,
    spans: Option<ExportOutlet>,
    metrics: PrometheusHandle,
}

/// The upstream servers, and what their requests are authorized by.
struct UpstreamParts {
    routed: RoutedServers,
    tokens: servers::ServerTokens,
    caller_signer: Option<Arc<CallerSigner>>,
}

impl UpstreamParts {
    fn new(
        settings: &Settings,
        ring: Option<&KeyRing>,
        vault: Option<&Arc<Vault>>,
        previous: Option<&PreviousApp<'_>>,
    ) -> Result<Self, ServeError> {
        let present = previous.and_then(|previous| previous.app.caller_signer.clone());
        let caller_signer = match present {
            Some(present) => Some(present),
            None => caller_signer(settings, ring)?,
        };
        let tokens = servers::tokens(settings, previous)?;
        let credentials = UpstreamCredentials {
            signer: caller_signer.as_ref(),
            tokens: &tokens,
            vault,
        };
        let servers = Arc::new(servers::servers(settings, &credentials, previous)?);
        servers::note_missing_programs(settings, &servers, previous);
        let connectors = Arc::new(servers::connectors(settings, previous)?);
        Ok(Self {
            routed: RoutedServers {
                servers,
                connectors,
            },
            tokens,
            caller_signer,
        })
    }
}

/// Builds the first state.
pub(crate) async fn assemble(
    settings: &Settings,
    parts: GatewayParts,
    recorder: PrometheusHandle,
) -> Result<Arc<App>, ServeError> {
    let telemetry = telemetry::start(settings, &parts.worker);
    let telemetry = telemetry.map_err(|error| ServeError::Unavailable {
        service: "telemetry.otlp_endpoint".to_owned(),
        reason: with_causes(&error),
    })?;
    let (tracer, spans) = telemetry
        .map(|telemetry| (telemetry.tracer, telemetry.outlet))
        .unzip();
    let vault = vault(settings, &parts.store)?;
    let upstream = UpstreamParts::new(settings, parts.ring.as_ref(), vault.as_ref(), None)?;
    let client = client(settings)?;
    let session_router = SessionRouter::new(
        parts.store,
        client.clone(),
        upstream.routed.clone(),
        owned(settings, parts.peers),
        parts.worker.clone(),
        affinity_options(settings),
        session_limits(settings),
    );
    let page = match settings.ui.is_enabled {
        true => Some(Arc::new(OperatorPage::new(
            &settings.ui,
            parts.ring.as_ref(),
        )?)),
        false => None,
    };
    let departure = session_router.departure().clone();
    let common = CommonParts {
        pool: Pool::new(
            client,
            parts.worker.boot(),
            settings.upstream.response_headers_timeout,
            session_router.in_flight_requests().clone(),
        ),
        session_router,
        request_log: Arc::new(RequestLog::new(
            &settings.log,
            UserDigests::new(parts.ring.as_ref()),
            tracer,
        )),
        client_states: client_states(parts.ring.as_ref())?,
        relay: RelayOptions {
            message_bytes_max: settings.upstream.event_bytes_max,
            seals: Seals::new(parts.ring.as_ref().map(SealKey::new)),
            stopping: CancellationToken::new(),
            departure,
        },
        vault,
        page,
        operator_cache: Arc::default(),
        reloads: parts.reloads,
        spans,
        metrics: recorder,
    };
    build(settings, common, upstream, parts.policy, None).await
}

/// Builds the state that follows at a reload, with the servers for the router. The caller lets requests begin with it.
pub(super) async fn assemble_next(
    settings: &Settings,
    previous: &PreviousApp<'_>,
    ring: Option<&KeyRing>,
) -> Result<(Arc<App>, RoutedServers), ServeError> {
    let PreviousApp { app, .. } = previous;
    let upstream = UpstreamParts::new(settings, ring, app.vault.as_ref(), Some(previous))?;
    let common = CommonParts {
        session_router: app.core.session_router.clone(),
        pool: app.core.pool.clone(),
        request_log: Arc::clone(&app.core.request_log),
        client_states: app.core.client_states.clone(),
        relay: app.core.relay.clone(),
        vault: app.vault.clone(),
        page: app.page.clone(),
        operator_cache: Arc::clone(&app.operator_cache),
        reloads: app.reloads.clone(),
        spans: app.spans.clone(),
        metrics: app.metrics.clone(),
    };
    let policy = Arc::new(AccessPolicy::of(settings));
    let routed = upstream.routed.clone();
    let next = build(settings, common, upstream, policy, Some(previous));
    Ok((next.await?, routed))
}

async fn build(
    settings: &Settings,
    common: CommonParts,
    upstream: UpstreamParts,
    policy: Arc<AccessPolicy>,
    previous: Option<&PreviousApp<'_>>,
) -> Result<Arc<App>, ServeError> {
    let session_router = &common.session_router;
    let code = code_servers(settings, session_router, previous).await?;
    let agents = agents(settings, session_router, previous)?;
    let hooks_client = session_router.client().http().clone();
    let core = Arc::new(ServingCore {
        servers: upstream.routed.servers,
        usages: usages(settings, previous),
        hooks: CallHooks::new(
            &settings.hooks,
            hooks_client,
            common.relay.message_bytes_max,
        ),
        policy,
        request_rates: request_rates(settings, previous),
        credential_page: (common.vault.as_ref()).and_then(|_| settings.vault.page_url.clone()),
        session_router: common.session_router,
        pool: common.pool,
        request_log: common.request_log,
        client_states: common.client_states,
        relay: common.relay,
    });
    let present = previous.map(|previous| &*previous.app.directory);
    let mut directory = ServerDirectory {
        groups: Groups::new(
            &settings.servers,
            &core.servers,
            code.as_ref(),
            present.map(|present| &present.groups),
        )?,
        admin: Vec::new(),
        core: Arc::clone(&core),
        agents,
        code,
        default_server: (settings.default_server.as_ref()).map(|id| id.as_str().into()),
        removed: present.map_or_else(RemovedServers::default, |present| {
            present.removed_with(settings.servers.iter().map(|server| server.id.as_str()))
        }),
    };
    let admin = admin_ids(settings)?;
    let authenticator = authenticator(settings, previous)?;
    Ok(Arc::new_cyclic(|app| {
        directory.admin = admin_servers(admin, app);
        let directory = Arc::new(directory);
        App {
            core,
            legacy: match previous {
                Some(previous) => previous.app.legacy.with_directory(Arc::clone(&directory)),
                None => LegacyClients::new(Arc::clone(&directory)),
            },
            directory,
            request_bodies: RequestBodies::new(settings.listen.body_bytes_max),
            stranger_rates: stranger_rates(settings, previous),
            listen: settings.listen.clone(),
            caller_signer: upstream.caller_signer,
            server_tokens: upstream.tokens,
            vault: common.vault,
            authenticator,
            page: common.page,
            operator_cache: common.operator_cache,
            reloads: common.reloads,
            spans: common.spans,
            metrics: common.metrics,
        }
    }))
}

fn authenticator(
    settings: &Settings,
    previous: Option<&PreviousApp<'_>>,
) -> Result<Arc<Authenticator>, ServeError> {
    let present = |app: &App| Arc::clone(&app.authenticator);
    let inputs = |settings: &Settings| (settings.auth.clone(), settings.exchanges_tokens());
    match unchanged(settings, previous, present, inputs) {
        Some(present) => Ok(present),
        None => {
            let authenticator = Authenticator::new(settings.auth.clone())?;
            let authenticator = authenticator.keeping_tokens(settings.exchanges_tokens());
            Ok(Arc::new(authenticator))
        }
    }
}

/// Signs the caller's identity, if a server gets it.
fn caller_signer(
    settings: &Settings,
    ring: Option<&KeyRing>,
) -> Result<Option<Arc<CallerSigner>>, ServeError> {
    let ring = ring.filter(|_| settings.forwards_identity());
    let signer = ring
        .map(|ring| CallerSigner::new(ring).map(Arc::new))
        .transpose();
    signer.map_err(|error| ServeError::Unavailable {
        service: "worker.fleet_keys_file".to_owned(),
        reason: error.to_string(),
    })
}

/// Seals what clients bring back: with the keys of the fleet, or with one that only this process knows.
fn client_states(ring: Option<&KeyRing>) -> Result<ClientStates, ServeError> {
    let own;
    let ring = match ring {
        Some(ring) => ring,
        None => {
            own = KeyRing::random();
            &own
        }
    };
    ClientStates::new(ring).map_err(|error| ServeError::Unavailable {
        service: "worker.fleet_keys_file".to_owned(),
        reason: error.to_string(),
    })
}

/// The vault of user credentials, if there are keys for it.
fn vault(settings: &Settings, store: &Store) -> Result<Option<Arc<Vault>>, ServeError> {
    let opened = Vault::open(&settings.vault, &settings.auth, store.clone());
    opened.map_err(|error| ServeError::Unavailable {
        service: "vault.keys_file".to_owned(),
        reason: error.to_string(),
    })
}

pub(super) fn client(settings: &Settings) -> Result<Client, ClientError> {
    let options = HttpClientOptions {
        connect_timeout: settings.upstream.connect_timeout,
        idle_connection: settings.upstream.idle_connection,
        silence: SilenceLimits::default(),
        event_bytes_max: settings.upstream.event_bytes_max,
    };
    let http = HttpClient::new(options, tls_config(needs_tls(settings))?);
    Ok(Client::new(http, settings.upstream.lost_after))
}

/// Whether requests to servers, hooks or authorization servers have TLS.
pub(super) fn needs_tls(settings: &Settings) -> bool {
    settings
        .servers
        .iter()
        .filter_map(|server| match &server.kind {
            settings::ServerKind::Http(http) | settings::ServerKind::Sse(http) => {
                Some(&http.instances)
            }
            settings::ServerKind::Code(_)
            | settings::ServerKind::Stdio(_)
            | settings::ServerKind::Group(_)
            | settings::ServerKind::Agent(_)
            | settings::ServerKind::Admin => None,
        })
        .flatten()
        .map(settings::Instance::uri)
        .chain(settings.hooks.iter().map(|hook| &hook.url))
        .any(|uri| uri.scheme_str() == Some("https"))
        || servers::fetches_tokens_over_tls(settings)
}

/// The connections that this gateway owns, and how it reaches those of others.
fn owned(settings: &Settings, peers: Option<PeerClient>) -> OwnedConnections {
    let upstream = &settings.upstream;
    let options = ConnectionSettings {
        message_bytes_max: upstream.event_bytes_max,
        events_max: upstream.event_log_events_max,
        event_bytes_max: upstream.event_log_bytes_max,
        client_answer_timeout: upstream.client_answer_timeout,
    };
    OwnedConnections::new(options, settings.worker.beat_ttl, peers)
}

/// The limits of sessions, which a reload can change.
pub(super) const fn session_limits(settings: &Settings) -> SessionLimits {
    SessionLimits {
        sessions_max: settings.affinity.sessions_max,
        initializes_per_minute: settings.affinity.initializes_per_minute,
    }
}

fn affinity_options(settings: &Settings) -> SessionRouterOptions {
    SessionRouterOptions {
        session_ttl: Millis::from(settings.affinity.session_ttl),
        claim_lease: Millis::from(settings.upstream.claim_lease),
        turn_wait_max: settings.affinity.turn_wait_max,
        delegation_lease: Millis::from(settings.affinity.delegation_lease),
        answer_timeout: settings.upstream.response_headers_timeout,
        key_prefix: settings.store.key_prefix.as_str().into(),
    }
}
