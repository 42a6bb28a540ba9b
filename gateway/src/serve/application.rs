//! Builds the shared state of all requests from settings and parts that were opened before.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use mooring_session::names::{NameError, ServerName, WorkerId};
use mooring_session::time::Millis;
use tokio_util::sync::CancellationToken;

use super::servers::UpstreamCredentials;
use super::{ServeError, servers};
use crate::http::{App, RequestBodies, StrangerRates};
use crate::vault::Vault;
use mooring_agent::server::AgentServers;
use mooring_code::proxy::AddressPolicy;
use mooring_code::server::CodeServers;
use mooring_identity::Authenticator;
use mooring_peers::PeerClient;
use mooring_peers::fleet::{CallerSigner, KeyRing, SealKey, UserDigests};
use mooring_pipeline::group::Groups;
use mooring_pipeline::hooks::CallHooks;
use mooring_pipeline::legacy::LegacyClients;
use mooring_pipeline::policy::AccessPolicy;
use mooring_pipeline::{RequestLog, RequestRates, ServerDirectory, ServingCore, UserUsages};
use mooring_router::affinity::{
    ConnectionSettings, OwnedConnections, SessionRouter, SessionRouterOptions,
};
use mooring_router::dispatch::{RelayOptions, Seals};
use mooring_router::pooled::Pool;
use mooring_settings::{self as settings, AuthSettings, Settings};
use mooring_store::{SessionAccess, Store};
use mooring_upstream::{
    Client, ClientError, HttpClient, HttpClientOptions, SilenceLimits, tls_config,
};
use mooring_usage::{MemoryBudget, SharePart, UsageLimits};

/// Directory of locks on conversations, beside the file of an embedded store that processes share.
const AGENT_LOCKS: &str = "agent-locks";

/// How long the rest of a reply waits for memory: as long as a client may read nothing of its stream.
const ROOM_WITHIN: Duration = Duration::from_secs(30);

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
}

/// Builds the shared state of all requests.
pub(crate) async fn assemble(
    settings: &Settings,
    parts: GatewayParts,
    recorder: PrometheusHandle,
) -> Result<Arc<App>, ServeError> {
    let caller_signer = caller_signer(settings, parts.ring.as_ref())?;
    let tokens = servers::tokens(settings)?;
    let vault = vault(settings, &parts.store)?;
    let credentials = UpstreamCredentials {
        signer: caller_signer.as_ref(),
        tokens: &tokens,
        vault: vault.as_ref(),
    };
    let servers = Arc::new(servers::servers(settings, &credentials)?);
    servers::note_missing_programs(settings, &servers);
    let client = client(settings)?;
    let message_bytes_max = settings.upstream.event_bytes_max;
    let session_router = SessionRouter::new(
        parts.store,
        client.clone(),
        Arc::clone(&servers),
        owned(settings, parts.peers)?,
        parts.worker.clone(),
        affinity_options(settings),
    );
    let code = code_servers(settings, &session_router).await?;
    let agents = agents(settings, &session_router)?;
    let core = Arc::new(ServingCore {
        pool: Pool::new(
            client.clone(),
            parts.worker.boot(),
            settings.upstream.response_headers_timeout,
            session_router.in_flight_requests().clone(),
        ),
        servers,
        session_router,
        usages: UserUsages::new(usage_limits(settings)),
        hooks: CallHooks::new(&settings.hooks, client.http().clone(), message_bytes_max),
        policy: parts.policy,
        request_log: Arc::new(RequestLog::new(
            &settings.log,
            UserDigests::new(parts.ring.as_ref()),
        )),
        request_rates: (settings.listen.requests_per_user_per_minute)
            .and_then(NonZeroU32::new)
            .map(|per_minute| RequestRates::new(per_minute.get(), Duration::from_secs(60))),
        credential_page: (vault.as_ref()).and_then(|_| settings.vault.page_url.clone()),
        relay: RelayOptions {
            message_bytes_max,
            seals: Seals::new(parts.ring.as_ref().map(SealKey::new)),
            stopping: CancellationToken::new(),
        },
    });
    let directory = Arc::new(ServerDirectory {
        groups: Groups::new(&settings.servers, &core.servers, code.as_ref())?,
        core: Arc::clone(&core),
        agents,
        code,
        default_server: (settings.default_server.as_ref()).map(|id| id.as_str().into()),
    });
    Ok(Arc::new(App {
        core,
        legacy: LegacyClients::new(Arc::clone(&directory)),
        directory,
        request_bodies: RequestBodies::new(settings.listen.body_bytes_max),
        stranger_rates: (settings.listen.refusals_per_peer_per_second)
            .and_then(NonZeroU32::new)
            .map(StrangerRates::new),
        listen: settings.listen.clone(),
        caller_signer,
        server_tokens: tokens.into_values().collect(),
        vault,
        authenticator: Authenticator::new(settings.auth.clone())?
            .keeping_tokens(settings.exchanges_tokens()),
        metrics: recorder,
    }))
}

/// The shared resources, and how much of them one user may use.
fn usage_limits(settings: &Settings) -> UsageLimits {
    let part = match settings.auth {
        AuthSettings::None => SharePart::Whole,
        _ => SharePart::Quarter,
    };
    let (listen, upstream) = (&settings.listen, &settings.upstream);
    let calls_max = listen.calls_per_user_at_once.filter(|max| *max > 0);
    UsageLimits {
        calls_max: calls_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
        messages: MemoryBudget::new(
            listen.body_budget_bytes,
            listen.body_bytes_max,
            part,
            "listen.body_budget_bytes",
            || Box::pin(tokio::time::sleep(ROOM_WITHIN)),
        ),
        replies: MemoryBudget::new(
            upstream.reply_budget_bytes,
            upstream.event_bytes_max,
            part,
            "upstream.reply_budget_bytes",
            || Box::pin(tokio::time::sleep(ROOM_WITHIN)),
        ),
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

/// The vault of user credentials, if there are keys for it.
fn vault(settings: &Settings, store: &Store) -> Result<Option<Arc<Vault>>, ServeError> {
    let opened = Vault::open(&settings.vault, &settings.auth, store.clone());
    opened.map_err(|error| ServeError::Unavailable {
        service: "vault.keys_file".to_owned(),
        reason: error.to_string(),
    })
}

/// The agent servers. Processes that share an embedded store may run the same conversations.
fn agents(settings: &Settings, session_router: &SessionRouter) -> Result<AgentServers, NameError> {
    let servers = settings
        .servers
        .iter()
        .filter_map(|server| match &server.kind {
            settings::ServerKind::Agent(agent) => Some((server.id.as_str(), agent)),
            _ => None,
        });
    let locks_directory = match &settings.store.location {
        settings::StoreLocation::Embedded { path } => {
            path.parent().map(|home| home.join(AGENT_LOCKS))
        }
        settings::StoreLocation::Redis(_) => None,
    };
    AgentServers::new(
        servers,
        settings.agent_sessions_max(),
        &session_access(session_router),
        locks_directory,
    )
}

/// The code servers, if any are configured.
async fn code_servers(
    settings: &Settings,
    session_router: &SessionRouter,
) -> Result<Option<CodeServers>, ServeError> {
    let Some(code) = &settings.code else {
        return Ok(None);
    };
    let mut servers = Vec::new();
    for configured in &settings.servers {
        if let settings::ServerKind::Code(server) = &configured.kind {
            let id = ServerName::parse(configured.id.as_str().as_bytes())?;
            servers.push((id, server.clone()));
        }
    }
    let mountable = servers::mountable(settings)?;
    let addresses = AddressPolicy::public(store_addresses(settings).await);
    let answer_timeout = settings.upstream.response_headers_timeout;
    let sessions = session_access(session_router);
    let servers = CodeServers::open(
        code,
        &servers,
        mountable,
        addresses,
        answer_timeout,
        sessions,
    );
    Ok(Some(servers.await?))
}

/// The router as code and agent servers use it.
fn session_access(session_router: &SessionRouter) -> Arc<dyn SessionAccess> {
    Arc::new(session_router.clone())
}

/// Addresses of the store, which code must never reach. This machine's own addresses are determined when they are
/// needed.
async fn store_addresses(settings: &Settings) -> Vec<IpAddr> {
    let settings::StoreLocation::Redis(url) = &settings.store.location else {
        return Vec::new();
    };
    let mut addresses = Vec::new();
    for host in url.hosts() {
        // The store could not be reached by an unresolvable name either.
        if let Ok(found) = tokio::net::lookup_host(host).await {
            addresses.extend(found.map(|address| address.ip()));
        }
    }
    addresses
}

pub(super) fn client(settings: &Settings) -> Result<Client, ClientError> {
    let options = HttpClientOptions {
        connect_timeout: settings.upstream.connect_timeout,
        idle_connection: settings.upstream.idle_connection,
        silence: SilenceLimits::default(),
        event_bytes_max: settings.upstream.event_bytes_max,
    };
    let needs_tls = settings
        .servers
        .iter()
        .filter_map(|server| match &server.kind {
            settings::ServerKind::Http(http) | settings::ServerKind::Sse(http) => {
                Some(&http.instances)
            }
            settings::ServerKind::Code(_)
            | settings::ServerKind::Stdio(_)
            | settings::ServerKind::Group(_)
            | settings::ServerKind::Agent(_) => None,
        })
        .flatten()
        .map(settings::Instance::uri)
        .chain(settings.hooks.iter().map(|hook| &hook.url))
        .any(|uri| uri.scheme_str() == Some("https"))
        || servers::fetches_tokens_over_tls(settings);
    let http = HttpClient::new(options, tls_config(needs_tls)?);
    Ok(Client::new(http, settings.upstream.lost_after))
}

/// The connections that this gateway owns, and how it reaches those of others.
fn owned(settings: &Settings, peers: Option<PeerClient>) -> Result<OwnedConnections, NameError> {
    let upstream = &settings.upstream;
    let options = ConnectionSettings {
        message_bytes_max: upstream.event_bytes_max,
        events_max: upstream.event_log_events_max,
        event_bytes_max: upstream.event_log_bytes_max,
        client_answer_timeout: upstream.client_answer_timeout,
    };
    let connectors = servers::connectors(settings)?;
    Ok(OwnedConnections::new(
        connectors,
        options,
        settings.worker.beat_ttl,
        peers,
    ))
}

fn affinity_options(settings: &Settings) -> SessionRouterOptions {
    SessionRouterOptions {
        session_ttl: Millis::from(settings.affinity.session_ttl),
        sessions_max: settings.affinity.sessions_max,
        initializes_per_minute: settings.affinity.initializes_per_minute,
        claim_lease: Millis::from(settings.upstream.claim_lease),
        turn_wait_max: settings.affinity.turn_wait_max,
        delegation_lease: Millis::from(settings.affinity.delegation_lease),
        answer_timeout: settings.upstream.response_headers_timeout,
        key_prefix: settings.store.key_prefix.as_str().into(),
    }
}
