//! The session settings of a server of kind `agent`.

use std::num::NonZeroU64;
use std::time::Duration;

use super::outcome::SessionsError;
use mooring_settings::{ServerKind, Settings};

/// The TTL of idle sessions, and the session cap of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) session_ttl: Duration,
    pub(super) sessions_max: NonZeroU64,
}

impl Policy {
    /// Reads them from this server's settings.
    pub(super) fn of(settings: &Settings, server: &str) -> Result<Self, SessionsError> {
        match settings.server(server).map(|server| &server.kind) {
            Some(ServerKind::Agent(agent)) => Ok(Self {
                session_ttl: agent.session_ttl,
                sessions_max: NonZeroU64::new(settings.agent_sessions_max())
                    .unwrap_or(NonZeroU64::MIN),
            }),
            Some(other) => Err(SessionsError::Flag(format!(
                "{server} is of kind {}, not agent",
                other.name()
            ))),
            None => Err(SessionsError::Flag(format!(
                "the settings have no server of kind agent named {server:?}"
            ))),
        }
    }
}

/// The ids of the servers of kind `agent`.
pub(super) fn agents(settings: &Settings) -> Vec<&str> {
    let of_agents =
        |server: &&mooring_settings::ServerSettings| matches!(server.kind, ServerKind::Agent(_));
    let servers = settings.servers.iter().filter(of_agents);
    servers.map(|server| server.id.as_str()).collect()
}
