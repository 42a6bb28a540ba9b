//! Builds the servers that the gateway answers itself: those that run code, agents, and those for operators.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use mooring_session::names::{NameError, ServerName};

use super::previous_app::PreviousApp;
use super::{ServeError, servers};
use crate::http::{App, RestTools};
use mooring_agent::server::AgentServers;
use mooring_code::proxy::AddressPolicy;
use mooring_code::server::CodeServers;
use mooring_pipeline::{AdminServer, OperatorTools};
use mooring_router::affinity::SessionRouter;
use mooring_settings::{self as settings, CodeServerSettings, ServerSettings, Settings};
use mooring_store::SessionAccess;

/// Directory of locks on conversations, beside the file of an embedded store that processes share.
const AGENT_LOCKS: &str = "agent-locks";

/// The agent servers. Processes that share an embedded store may run the same conversations.
pub(super) fn agents(
    settings: &Settings,
    session_router: &SessionRouter,
    previous: Option<&PreviousApp<'_>>,
) -> Result<AgentServers, NameError> {
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
        previous.map(|previous| &previous.app.directory.agents),
    )
}

/// The ids of the servers of kind `admin`.
pub(super) fn admin_ids(settings: &Settings) -> Result<Vec<ServerName>, NameError> {
    let is_admin = |server: &&ServerSettings| server.kind == settings::ServerKind::Admin;
    let servers = settings.servers.iter().filter(is_admin);
    servers
        .map(|server| ServerName::parse(server.id.as_str().as_bytes()))
        .collect()
}

/// The servers of kind `admin`, whose tools do what this state does.
pub(super) fn admin_servers(ids: Vec<ServerName>, app: &Weak<App>) -> Vec<AdminServer> {
    if ids.is_empty() {
        return Vec::new();
    }
    let tools: Arc<dyn OperatorTools> = Arc::new(RestTools::new(Weak::clone(app)));
    let server = |id| AdminServer {
        id,
        tools: Arc::clone(&tools),
    };
    ids.into_iter().map(server).collect()
}

/// The code servers, if any are configured.
pub(super) async fn code_servers(
    settings: &Settings,
    session_router: &SessionRouter,
    previous: Option<&PreviousApp<'_>>,
) -> Result<Option<CodeServers>, ServeError> {
    let Some(code) = &settings.code else {
        return Ok(None);
    };
    let servers = code_server_settings(settings)?;
    let mountable = servers::mountable(settings)?;
    if let Some((present, before)) = previous
        .and_then(|previous| Some((previous.app.directory.code.as_ref()?, previous.settings)))
    {
        let is_unchanged =
            code_server_settings(before)? == servers && servers::mountable(before)? == mountable;
        return match is_unchanged {
            true => Ok(Some(present.clone())),
            false => Ok(Some(present.reload(code, &servers, mountable)?)),
        };
    }
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

fn code_server_settings(
    settings: &Settings,
) -> Result<Vec<(ServerName, CodeServerSettings)>, NameError> {
    let code = settings.servers.iter().filter_map(|configured| {
        let settings::ServerKind::Code(server) = &configured.kind else {
            return None;
        };
        Some((configured.id.as_str(), server))
    });
    code.map(|(id, server)| Ok((ServerName::parse(id.as_bytes())?, server.clone())))
        .collect()
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
