//! What a path leads to. Here alone it is decided by a server's kind.

use std::sync::Arc;

use axum::extract::Path;

use super::App;
use crate::agent::server::AgentServer;
use crate::code::server::CodeServer;
use crate::group::Group;
use crate::upstream::Server;

/// A server, by its kind.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// MCP servers somewhere else, to which requests are passed on.
    Upstream(Arc<Server>),
    /// Code, which the gateway answers itself.
    Code(Arc<CodeServer>),
    /// A command-line agent, which the gateway runs for each call.
    Agent(Arc<AgentServer>),
    /// Several of the others as one.
    Group(Arc<Group>),
}

impl Target {
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

impl App {
    /// The server of this id.
    pub(super) fn target(&self, id: &str) -> Option<Target> {
        let upstream = || self.servers.get(id).cloned().map(Target::Upstream);
        let code = || self.code.as_ref()?.get(id).cloned().map(Target::Code);
        let agent = || self.agents.get(id).cloned().map(Target::Agent);
        let group = || self.groups.get(id).cloned().map(Target::Group);
        upstream().or_else(code).or_else(agent).or_else(group)
    }

    /// The server that a path names; where it names none, the default one.
    pub(super) fn aimed_at(&self, id: Option<Path<String>>) -> Option<Target> {
        match id {
            Some(Path(id)) => self.target(&id),
            None => self.target(self.default_server.as_deref()?),
        }
    }
}
