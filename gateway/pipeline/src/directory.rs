//! The servers of every kind by id, and which of them a caller may use.

use std::sync::Arc;

use mooring_session::names::ServerName;

use super::admin::AdminServer;
use super::answer;
use super::group::{Group, Groups};
use super::policy::Access;
use super::refusals::RefusalCause;
use super::removed_servers::RemovedServers;
use super::request::RequestServer;
use super::request_entry::RequestEntry;
use super::serving_core::ServingCore;
use mooring_agent::server::{AgentServer, AgentServers};
use mooring_code::server::{CodeServer, CodeServers};
use mooring_identity::Identity;
use mooring_protocol::{ErrorBody, ErrorKind, Reply};
use mooring_upstream::Server;

/// Most servers that an error lists.
const IDS_SHOWN_MAX: usize = 20;

/// A server, by its kind.
#[derive(Clone, Debug)]
pub enum ServerTarget {
    /// An upstream MCP server.
    Upstream(Arc<Server>),
    /// A code server, which the gateway answers itself.
    Code(Arc<CodeServer>),
    /// A command-line agent, which the gateway runs for each call.
    Agent(Arc<AgentServer>),
    /// Several other servers as one.
    Group(Arc<Group>),
    /// What operators see and do, which the gateway answers itself.
    Admin(AdminServer),
}

impl ServerTarget {
    /// The ids of a group's members; none at another server.
    #[must_use]
    pub fn members(&self) -> Vec<&str> {
        match self {
            Self::Group(group) => group.ids(),
            Self::Upstream(_) | Self::Code(_) | Self::Agent(_) | Self::Admin(_) => Vec::new(),
        }
    }
}

impl RequestServer for ServerTarget {
    fn id(&self) -> &ServerName {
        match self {
            Self::Upstream(server) => &server.id,
            Self::Code(server) => &server.id,
            Self::Agent(server) => &server.id,
            Self::Group(group) => &group.id,
            Self::Admin(server) => &server.id,
        }
    }

    fn asks_hooks(&self) -> bool {
        !matches!(self, Self::Group(_))
    }
}

/// Why a request is not served.
#[derive(Debug)]
pub struct AdmissionRefusal<'a> {
    /// The reply, as far as it is the same for every transport.
    pub reply: Reply,
    /// The scopes that would let the caller in, if their token lacks nothing else.
    pub scopes_missing: Option<&'a [String]>,
}

impl From<Reply> for AdmissionRefusal<'_> {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            scopes_missing: None,
        }
    }
}

/// The servers of every kind.
#[derive(Debug)]
pub struct ServerDirectory {
    /// What serves them, with the upstream servers.
    pub core: Arc<ServingCore>,
    /// The agent servers.
    pub agents: AgentServers,
    /// The code servers; none if none is configured.
    pub code: Option<CodeServers>,
    /// The groups.
    pub groups: Groups,
    /// The servers of kind `admin`.
    pub admin: Vec<AdminServer>,
    /// The id of the server that a client means that names none.
    pub default_server: Option<Box<str>>,
    /// The servers that reloads have removed.
    pub removed: RemovedServers,
}

impl ServerDirectory {
    /// Counts a request of this caller, and finds the server that it names; the default one if it names none.
    ///
    /// # Errors
    /// Too many requests. `Forbidden` if the caller's token lacks scopes with which it could use the server.
    /// `ServerNotFound` for every other server that is not there or not the caller's to use, with those that are.
    pub fn admit<'a>(
        &'a self,
        id: Option<&str>,
        caller: &'a Identity,
        entry: Option<&RequestEntry>,
    ) -> Result<ServerTarget, Box<AdmissionRefusal<'a>>> {
        if let Some(entry) = entry {
            entry.note_user(&caller.principal);
        }
        let counted = self.core.count_requests(caller, 1);
        counted.map_err(|wait| Box::new(answer::too_many_requests(wait).into()))?;
        let named = id.or(self.default_server.as_deref());
        let target = named.and_then(|id| self.target_for(id, caller));
        target.ok_or_else(|| Box::new(self.not_found(id, named, caller)))
    }

    /// The server of this id.
    pub(crate) fn target(&self, id: &str) -> Option<ServerTarget> {
        let servers = &self.core.servers;
        let upstream = || servers.get(id).cloned().map(ServerTarget::Upstream);
        let code = || self.code.as_ref()?.get(id).cloned().map(ServerTarget::Code);
        let agent = || self.agents.get(id).cloned().map(ServerTarget::Agent);
        let group = || self.groups.get(id).cloned().map(ServerTarget::Group);
        let admin = || {
            let mut servers = self.admin.iter();
            let found = servers.find(|server| server.id.as_str() == id);
            found.cloned().map(ServerTarget::Admin)
        };
        upstream()
            .or_else(code)
            .or_else(agent)
            .or_else(group)
            .or_else(admin)
    }

    /// The server of this id as the caller sees it: none that it may not use, and of a group the members that it may.
    pub(crate) fn target_for(&self, id: &str, caller: &Identity) -> Option<ServerTarget> {
        let policy = &self.core.policy;
        match self.target(id)? {
            _ if !policy.may_use(caller, id) => None,
            ServerTarget::Group(group) => {
                let visible = group.with_members(|member| policy.may_use(caller, member));
                Some(ServerTarget::Group(visible))
            }
            target => Some(target),
        }
    }

    /// The refusal of a request that names `id`, by which it means the server `named`.
    fn not_found<'a>(
        &'a self,
        id: Option<&str>,
        named: Option<&str>,
        caller: &'a Identity,
    ) -> AdmissionRefusal<'a> {
        if let Some(scopes) = named.and_then(|id| self.scopes_missing(id, caller)) {
            let detail = format!("the token lacks scopes; it needs {}", scopes.join(" "));
            return AdmissionRefusal {
                reply: answer::detailed(ErrorKind::Forbidden, None, detail),
                scopes_missing: Some(scopes),
            };
        }
        let missing = ErrorBody::new(ErrorKind::ServerNotFound);
        if let Some(id) = named.filter(|id| self.removed.was_usable(id, caller)) {
            let error = missing.detail(format_args!(
                "{id} was removed from the settings of this gateway, and its sessions have ended"
            ));
            return answer::error(&error).into();
        }
        if let Some(waiting) = named.and_then(|id| self.waiting(id)) {
            return waiting.into();
        }
        let error = match (id, self.ids_shown(caller)) {
            (_, ids) if ids.is_empty() => {
                missing.detail("you may use none here: ask the operator of this gateway")
            }
            (Some(_), ids) => missing.detail(format_args!("the servers are {ids}")),
            (None, ids) => missing.detail(format_args!(
                "the path names none and default.server is not set: \
                 use /servers/{{id}}/mcp with one of {ids}, or set default.server"
            )),
        };
        answer::error(&error).into()
    }

    /// The refusal of a request for a server that operators may have added, or have added, and that is not served here yet. A
    /// client that gets 404 gives its session up.
    fn waiting(&self, id: &str) -> Option<Reply> {
        let store = self.core.session_router.store();
        if !store.knows_desired_state() {
            let detail =
                "the store is away, and which servers operators have added is not known yet";
            return Some(answer::detailed(ErrorKind::StoreUnavailable, None, detail));
        }
        let desired = store.desired_state();
        let is_added = desired.servers.keys().any(|added| added.as_str() == id);
        (is_added && !self.serves(id)).then(|| {
            let detail = "operators have added the server, and this gateway does not serve it yet; its log says why, if \
                          that takes longer than a second";
            answer::detailed(ErrorKind::UpstreamUnavailable, None, detail)
        })
    }

    /// Logs that the caller may not use an existing server. Returns the scopes that would let the caller in, if they
    /// are all that is missing.
    fn scopes_missing<'a>(&'a self, id: &str, caller: &'a Identity) -> Option<&'a [String]> {
        self.target(id)?;
        let decision = self.core.policy.decide(caller, id);
        let user = self.core.request_log.user_digest(&caller.principal);
        tracing::info!(server = id, %user, basis = %decision.basis, "request refused: its user may not use the server");
        let cause = RefusalCause::at(id, decision.basis.to_string());
        self.core.request_log.note_refusal(&user, cause);
        match decision.access {
            Access::Denied(scopes) if !scopes.is_empty() => Some(scopes),
            _ => None,
        }
    }

    /// Every server, by id.
    #[must_use]
    pub fn targets(&self) -> Vec<ServerTarget> {
        let upstreams = self.core.servers.iter().cloned();
        let code = self.code.iter().flat_map(|servers| servers.iter().cloned());
        let agents = self.agents.iter().cloned();
        let groups = self.groups.iter().cloned();
        let admin = self.admin.iter().cloned();
        let mut all: Vec<ServerTarget> = upstreams
            .map(ServerTarget::Upstream)
            .chain(code.map(ServerTarget::Code))
            .chain(agents.map(ServerTarget::Agent))
            .chain(groups.map(ServerTarget::Group))
            .chain(admin.map(ServerTarget::Admin))
            .collect();
        all.sort_by(|one, other| one.id().cmp(other.id()));
        all
    }

    /// The ids of the servers that the caller may use.
    pub fn usable_server_ids(&self, caller: &Identity) -> Vec<&str> {
        let mut ids: Vec<&str> = self
            .server_ids()
            .filter(|id| self.core.policy.may_use(caller, id))
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Whether it has a server of this id.
    #[must_use]
    pub fn serves(&self, id: &str) -> bool {
        self.target(id).is_some()
    }

    /// The ids of all servers.
    pub(crate) fn server_ids(&self) -> impl Iterator<Item = &str> {
        let upstreams = self.core.servers.iter().map(|server| server.id.as_str());
        let code = self.code.iter().flat_map(|servers| servers.iter());
        let agents = self.agents.iter().map(|server| server.id.as_str());
        let groups = self.groups.iter().map(|group| group.id.as_str());
        let admin = self.admin.iter().map(|server| server.id.as_str());
        upstreams
            .chain(code.map(|server| server.id.as_str()))
            .chain(agents)
            .chain(groups)
            .chain(admin)
    }

    /// The ids of the servers that the caller may use, as many as an error lists.
    fn ids_shown(&self, caller: &Identity) -> String {
        let mut ids = self.usable_server_ids(caller);
        let left_out = ids.len().saturating_sub(IDS_SHOWN_MAX);
        ids.truncate(IDS_SHOWN_MAX);
        let shown = ids.join(", ");
        match left_out {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }
}
