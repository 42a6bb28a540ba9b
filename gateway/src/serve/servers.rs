//! Builds upstream servers and their connectors from the settings.
//!
//! Invariant: what the settings have not changed is not built again, so that its health, its tokens and its connections
//! outlive a reload.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, Uri};
use mooring_session::names::{InstanceName, NameError, ServerName};
use mooring_session::rules::Ownership;

use super::previous_app::PreviousApp;
use crate::vault::Vault;
use mooring_code::catalog::MountableServer;
use mooring_peers::fleet::CallerSigner;
use mooring_router::affinity::Connector;
use mooring_settings::{
    HttpServerSettings, OauthSettings, ServerKind, ServerSettings, Settings, StdioServerSettings,
    UpstreamSettings,
};
use mooring_upstream::stdio::{
    ChildLimits, ChildSpec, Children, Environment, Launcher, ProcessLimits, StartError,
    StartFailure, Traffic,
};
use mooring_upstream::{
    CallerCredentials, ContactOutcome, FailureCause, Instance, OauthTokens, STARTED_HERE,
    SecretHeader, Server, Servers, SessionPolicy, UserSecrets,
};

/// Most queued messages in each direction of a child's streams.
const MESSAGES_WAITING_MAX: usize = 256;

/// The servers whose tools code may call.
pub(super) fn mountable(settings: &Settings) -> Result<Vec<MountableServer>, NameError> {
    let upstream = settings
        .servers
        .iter()
        .filter(|server| is_upstream(&server.kind));
    upstream
        .map(|server| {
            Ok(MountableServer {
                id: ServerName::parse(server.id.as_str().as_bytes())?,
                tags: server.tags.clone(),
                is_program: matches!(server.kind, ServerKind::Stdio(_)),
            })
        })
        .collect()
}

/// Whether this server can list tools: it is remote, or a program that speaks MCP.
pub(super) fn lists_tools(settings: &Settings, id: &str) -> bool {
    let kind = settings.server(id).map(|server| &server.kind);
    kind.is_some_and(is_upstream)
}

fn is_upstream(kind: &ServerKind) -> bool {
    match kind {
        ServerKind::Http(_) | ServerKind::Sse(_) | ServerKind::Stdio(_) => true,
        ServerKind::Code(_) | ServerKind::Group(_) | ServerKind::Agent(_) | ServerKind::Admin => {
            false
        }
    }
}

/// The tokens for servers, by their ids.
pub(super) type ServerTokens = HashMap<Box<str>, Arc<OauthTokens>>;

/// The tokens that are fetched from authorization servers.
pub(super) fn tokens(
    settings: &Settings,
    previous: Option<&PreviousApp<'_>>,
) -> Result<ServerTokens, NameError> {
    let fetched = settings
        .servers
        .iter()
        .filter_map(|server| Some((server.id.as_str(), server.oauth()?)));
    let token = |(id, oauth): (&str, &OauthSettings)| {
        let unchanged = previous.and_then(|previous| {
            let present = previous.settings.server(id)?.oauth()?;
            let tokens = previous.app.server_tokens.get(id)?;
            (present == oauth).then(|| Arc::clone(tokens))
        });
        let tokens = match unchanged {
            Some(tokens) => tokens,
            None => {
                let name = ServerName::parse(id.as_bytes())?;
                Arc::new(OauthTokens::new(name, oauth.clone()))
            }
        };
        Ok((id.into(), tokens))
    };
    fetched.map(token).collect()
}

/// Whether a token is fetched over TLS.
pub(super) fn fetches_tokens_over_tls(settings: &Settings) -> bool {
    let mut fetched = settings.servers.iter().filter_map(ServerSettings::oauth);
    fetched.any(|oauth| oauth.token_url.scheme() == "https")
}

/// The credentials for requests to servers.
pub(super) struct UpstreamCredentials<'a> {
    /// Makes the tokens with the caller's identity, for servers that get them.
    pub(super) signer: Option<&'a Arc<CallerSigner>>,
    /// Those of authorization servers.
    pub(super) tokens: &'a ServerTokens,
    /// The vault of user credentials.
    pub(super) vault: Option<&'a Arc<Vault>>,
}

/// Every configured upstream server.
pub(super) fn servers(
    settings: &Settings,
    credentials: &UpstreamCredentials<'_>,
    previous: Option<&PreviousApp<'_>>,
) -> Result<Servers, NameError> {
    let mut servers = Vec::new();
    for configured in &settings.servers {
        let previous = previous.and_then(|previous| {
            let id = configured.id.as_str();
            Some(PreviousServer {
                kind: &previous.settings.server(id)?.kind,
                server: previous.app.core.servers.get(id)?,
            })
        });
        if let Some(PreviousServer { kind, server }) = previous
            && *kind == configured.kind
        {
            servers.push(Arc::clone(server));
            continue;
        }
        let previous = previous.as_ref();
        let id = ServerName::parse(configured.id.as_str().as_bytes())?;
        let server = match &configured.kind {
            ServerKind::Http(http) => {
                over_http(id, http, Ownership::Shared, credentials, previous)?
            }
            ServerKind::Sse(sse) => over_http(id, sse, Ownership::Owned, credentials, previous)?,
            ServerKind::Stdio(stdio) => started(id, stdio)?,
            ServerKind::Code(_)
            | ServerKind::Group(_)
            | ServerKind::Agent(_)
            | ServerKind::Admin => continue,
        };
        servers.push(Arc::new(server));
    }
    Ok(Servers::new(servers))
}

/// What a server was before a reload.
#[derive(Clone, Copy)]
struct PreviousServer<'a> {
    kind: &'a ServerKind,
    server: &'a Arc<Server>,
}

fn over_http(
    id: ServerName,
    http: &HttpServerSettings,
    ownership: Ownership,
    credentials: &UpstreamCredentials<'_>,
    previous: Option<&PreviousServer<'_>>,
) -> Result<Server, NameError> {
    let policy = SessionPolicy {
        affinity: http.affinity,
        ownership,
        concurrency: http.concurrency,
        on_upstream_loss: http.on_upstream_loss,
        lost_state_notice: http.lost_state_notice,
        continuity: http.continuity,
    };
    let instances = instances(&http.instances, previous)?;
    let headers = http.headers.map().clone();
    let mut server = Server::new(id, instances, policy, headers);
    server.era = http.era;
    let UpstreamCredentials {
        signer,
        tokens,
        vault,
    } = credentials;
    server.tokens = tokens.get(server.id.as_str()).cloned();
    server.user_secret = http
        .user_secret
        .as_ref()
        .zip(*vault)
        .map(|(secret, vault)| {
            Arc::new(SecretHeader {
                name: secret.header.clone(),
                prefix: secret.prefix.as_str().into(),
                secrets: Arc::clone(vault) as Arc<dyn UserSecrets>,
            })
        });
    server.caller_credentials = signer
        .filter(|_| http.forward_identity)
        .map(|signer| Arc::clone(signer) as Arc<dyn CallerCredentials>);
    Ok(server)
}

fn started(id: ServerName, stdio: &StdioServerSettings) -> Result<Server, NameError> {
    let policy = SessionPolicy {
        affinity: mooring_settings::Affinity::On,
        ownership: Ownership::Owned,
        concurrency: stdio.concurrency,
        on_upstream_loss: stdio.on_upstream_loss,
        lost_state_notice: stdio.lost_state_notice,
        continuity: stdio.continuity,
    };
    let name = InstanceName::parse(STARTED_HERE.as_bytes())?;
    // Never dialed: the connections are pipes.
    let here = Instance::new(name, Uri::default());
    Ok(Server::new(
        id,
        vec![Arc::new(here)],
        policy,
        HeaderMap::new(),
    ))
}

/// The instances. One that the server had before keeps what is known of it.
fn instances(
    configured: &[mooring_settings::Instance],
    previous: Option<&PreviousServer<'_>>,
) -> Result<Vec<Arc<Instance>>, NameError> {
    configured
        .iter()
        .map(|instance| {
            let name = InstanceName::parse(instance.name().as_bytes())?;
            if let Some(known) = previous.and_then(|previous| previous.server.instance(&name)) {
                return Ok(Arc::clone(known));
            }
            Ok(Arc::new(Instance::new(name, instance.uri().clone())))
        })
        .collect()
}

/// The servers that start a program, each with whether it can be started now.
pub(super) fn programs(
    settings: &Settings,
) -> impl Iterator<Item = (&str, Result<(), StartFailure>)> {
    settings.servers.iter().filter_map(|server| {
        let found = match &server.kind {
            ServerKind::Stdio(stdio) => child_spec(stdio, &settings.upstream).find_program(),
            ServerKind::Agent(agent) => {
                let environment = Environment {
                    inherited: agent.variables.inherited().to_vec(),
                    set: agent.variables.given().to_vec(),
                };
                environment.find_program(agent.template.program())
            }
            ServerKind::Http(_)
            | ServerKind::Sse(_)
            | ServerKind::Code(_)
            | ServerKind::Group(_)
            | ServerKind::Admin => {
                return None;
            }
        };
        Some((server.id.as_str(), found))
    })
}

/// Marks new servers whose program is missing as unreachable, before they are called.
pub(super) fn note_missing_programs(
    settings: &Settings,
    servers: &Servers,
    previous: Option<&PreviousApp<'_>>,
) {
    for (id, found) in programs(settings) {
        let (Err(failure), Some(server)) = (found, servers.get(id)) else {
            continue;
        };
        let present = previous.and_then(|previous| previous.app.core.servers.get(id));
        if present.is_some_and(|present| Arc::ptr_eq(present, server)) {
            continue;
        }
        let text = StartError::from(failure).for_caller();
        let cause = FailureCause::new(ContactOutcome::NotStarted, text);
        for instance in &server.instances {
            instance.contact.fail(cause.clone());
        }
    }
}

/// Makes the connectors of owned connections.
pub(super) fn connectors(
    settings: &Settings,
    previous: Option<&PreviousApp<'_>>,
) -> Result<HashMap<ServerName, Arc<Connector>>, NameError> {
    let mut connectors = HashMap::new();
    for configured in &settings.servers {
        let id = ServerName::parse(configured.id.as_str().as_bytes())?;
        let present = previous.and_then(|previous| {
            let connector = previous.app.core.session_router.connector(&id)?;
            Some((&previous.settings.server(id.as_str())?.kind, connector))
        });
        let connector = match (&configured.kind, present) {
            (kind, Some((present, connector))) if present == kind => connector,
            (ServerKind::Stdio(stdio), present) => {
                let running =
                    present.and_then(|(kind, connector)| running(stdio, kind, &connector));
                Arc::new(child(stdio, &settings.upstream, running))
            }
            (ServerKind::Sse(_), _) => Arc::new(Connector::Sse),
            (
                ServerKind::Http(_)
                | ServerKind::Code(_)
                | ServerKind::Group(_)
                | ServerKind::Agent(_)
                | ServerKind::Admin,
                _,
            ) => continue,
        };
        connectors.insert(id, connector);
    }
    Ok(connectors)
}

/// The processes that were started before a reload. They count towards the limit, if that is the same.
fn running(
    stdio: &StdioServerSettings,
    present: &ServerKind,
    connector: &Connector,
) -> Option<Children> {
    match (present, connector) {
        (ServerKind::Stdio(present), Connector::Stdio { children, .. }) => {
            (present.children_max == stdio.children_max).then(|| children.clone())
        }
        _ => None,
    }
}

fn child(
    stdio: &StdioServerSettings,
    upstream: &UpstreamSettings,
    running: Option<Children>,
) -> Connector {
    let none_yet = || Children::new(stdio.children_max.get(), Launcher::default());
    Connector::Stdio {
        spec: Box::new(child_spec(stdio, upstream)),
        children: running.unwrap_or_else(none_yet),
        start_timeout: stdio.start_timeout,
        idle_timeout: stdio.idle_timeout,
    }
}

fn child_spec(stdio: &StdioServerSettings, upstream: &UpstreamSettings) -> ChildSpec {
    let variables = &stdio.variables;
    ChildSpec {
        program: stdio.command.program().to_owned(),
        arguments: stdio.command.arguments().to_vec(),
        directory: stdio.directory.clone(),
        environment: Environment {
            inherited: variables.inherited().to_vec(),
            set: variables.given().to_vec(),
        },
        traffic: Traffic::Messages,
        limits: ChildLimits {
            process: ProcessLimits {
                open_files: stdio.open_files_max.map(|most| most.get()),
                ..ProcessLimits::default()
            },
            message_bytes_max: upstream.event_bytes_max,
            messages_waiting_max: MESSAGES_WAITING_MAX,
            start_within: stdio.start_timeout,
            stop_grace: stdio.stop_grace,
            terminate_grace: stdio.stop_grace,
        },
    }
}
