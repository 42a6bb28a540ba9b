//! The server that a path identifies. Only here requests are dispatched by a server's kind.

use std::sync::Arc;

use super::App;
use crate::group::Group;
use crate::policy::Access;
use mooring_agent::server::AgentServer;
use mooring_code::server::CodeServer;
use mooring_identity::Identity;
use mooring_protocol::{ErrorBody, ErrorKind};
use mooring_upstream::Server;

/// Most servers that an error lists.
const IDS_SHOWN_MAX: usize = 20;

/// A server, by its kind.
#[derive(Clone, Debug)]
pub(super) enum ServerTarget {
    /// An upstream MCP server.
    Upstream(Arc<Server>),
    /// A code server, which the gateway answers itself.
    Code(Arc<CodeServer>),
    /// A command-line agent, which the gateway runs for each call.
    Agent(Arc<AgentServer>),
    /// Several other servers as one.
    Group(Arc<Group>),
}

impl ServerTarget {
    /// The server's id.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Upstream(server) => server.id.as_str(),
            Self::Code(server) => server.id.as_str(),
            Self::Agent(server) => server.id.as_str(),
            Self::Group(group) => group.id.as_str(),
        }
    }
}

/// Why a path's server is not there for the caller.
pub(super) struct TargetRefusal<'a> {
    /// The error for the caller.
    pub(super) error: ErrorBody<'static>,
    /// The scopes that would let the caller in, if their token lacks nothing else.
    pub(super) scopes_missing: Option<&'a [String]>,
}

impl App {
    /// The server of this id.
    pub(super) fn target(&self, id: &str) -> Option<ServerTarget> {
        let upstream = || self.servers.get(id).cloned().map(ServerTarget::Upstream);
        let code = || self.code.as_ref()?.get(id).cloned().map(ServerTarget::Code);
        let agent = || self.agents.get(id).cloned().map(ServerTarget::Agent);
        let group = || self.groups.get(id).cloned().map(ServerTarget::Group);
        upstream().or_else(code).or_else(agent).or_else(group)
    }

    /// The server of this id as the caller sees it: none that it may not use, and of a group the members that it may.
    pub(super) fn target_for(&self, id: &str, caller: &Identity) -> Option<ServerTarget> {
        match self.target(id)? {
            _ if !self.policy.may_use(caller, id) => None,
            ServerTarget::Group(group) => {
                let visible = group.with_members(|member| self.policy.may_use(caller, member));
                Some(ServerTarget::Group(visible))
            }
            target => Some(target),
        }
    }

    /// The server in a path; the default one if the path has none.
    ///
    /// # Errors
    /// `Forbidden` if the caller's token lacks scopes with which it could use the server. `ServerNotFound` for every
    /// other server that is not there or not the caller's to use, with those that are.
    pub(super) fn target_of_path<'a>(
        &'a self,
        id: Option<&str>,
        caller: &'a Identity,
    ) -> Result<ServerTarget, TargetRefusal<'a>> {
        let named = id.or(self.default_server.as_deref());
        let target = named.and_then(|id| self.target_for(id, caller));
        target.ok_or_else(|| {
            if let Some(id) = named
                && let Some(scopes) = self.refused(id, caller)
            {
                let detail = format!("the token lacks scopes; it needs {}", scopes.join(" "));
                return TargetRefusal {
                    error: ErrorBody::new(ErrorKind::Forbidden).detail(detail),
                    scopes_missing: Some(scopes),
                };
            }
            let missing = ErrorBody::new(ErrorKind::ServerNotFound);
            let error = match (id, self.server_ids(caller)) {
                (_, ids) if ids.is_empty() => {
                    missing.detail("you may use none here: ask the operator of this gateway")
                }
                (Some(_), ids) => missing.detail(format_args!("the servers are {ids}")),
                (None, ids) => missing.detail(format_args!(
                    "the path names none and default.server is not set: \
                     use /servers/{{id}}/mcp with one of {ids}, or set default.server"
                )),
            };
            TargetRefusal {
                error,
                scopes_missing: None,
            }
        })
    }

    /// Logs that the caller may not use an existing server. Returns the scopes that would let the caller in, if they
    /// are all that is missing.
    fn refused<'a>(&'a self, id: &str, caller: &'a Identity) -> Option<&'a [String]> {
        self.target(id)?;
        let decision = self.policy.decide(caller, id);
        let user = self.request_log.user_digest(&caller.principal);
        tracing::info!(server = id, %user, basis = %decision.basis, "request refused: its user may not use the server");
        match decision.access {
            Access::Denied(scopes) if !scopes.is_empty() => Some(scopes),
            _ => None,
        }
    }

    /// The ids of the servers that the caller may use.
    pub(super) fn usable_server_ids(&self, caller: &Identity) -> Vec<&str> {
        let upstreams = self.servers.iter().map(|server| server.id.as_str());
        let code = self.code.iter().flat_map(|servers| servers.iter());
        let agents = self.agents.iter().map(|server| server.id.as_str());
        let groups = self.groups.iter().map(|group| group.id.as_str());
        let all = upstreams
            .chain(code.map(|server| server.id.as_str()))
            .chain(agents)
            .chain(groups);
        let mut ids: Vec<&str> = all.filter(|id| self.policy.may_use(caller, id)).collect();
        ids.sort_unstable();
        ids
    }

    /// The same, as many as an error lists.
    fn server_ids(&self, caller: &Identity) -> String {
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
