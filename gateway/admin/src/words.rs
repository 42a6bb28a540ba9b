//! The words of views: closed sets, so that a schema lists them and a query can be checked.

use schemars::JsonSchema;
use serde::Serialize;

use mooring_session::record::SessionState;
use mooring_store::Family;
use mooring_upstream::ServerHealth;

/// Declares an enumeration whose variants are written in lower case wherever they appear.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema,
            strum::EnumString, strum::IntoStaticStr, strum::VariantNames,
        )]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant),* }
    )*};
}

words! {
    /// The kind of a session.
    SessionKind {
        /// Of an MCP client.
        Mcp,
        /// Of code: one user, one language.
        Code,
        /// Of a command-line agent.
        Agent,
    }

    /// The state of a session.
    SessionStatus {
        /// It can be used.
        Active,
        /// It was not used for its time to live.
        Expired,
        /// It was ended.
        Ended,
    }

    /// The state of a gateway.
    GatewayState {
        /// It takes new work.
        Serving,
        /// It finishes what it has, and owns no new connections.
        Draining,
        /// It has sent no heartbeat for too long.
        Dead,
    }

    /// The health of a server or instance, by this gateway's last contacts.
    Health {
        /// It was not contacted yet.
        Unknown,
        /// The last contact succeeded.
        Ok,
        /// The last contacts with some of its instances failed.
        Degraded,
        /// The last contact failed, with every instance.
        Unavailable,
    }

    /// The kind of a server.
    ServerKindName {
        /// Over Streamable HTTP.
        Http,
        /// Over HTTP+SSE.
        Sse,
        /// A program that a gateway starts for each session.
        Stdio,
        /// Code that the gateway runs itself.
        Code,
        /// A command-line agent.
        Agent,
        /// Several other servers as one.
        Group,
        /// What operators see and do, as tools.
        Admin,
    }
}

impl SessionKind {
    /// Every kind, in the order in which sessions are listed.
    pub const ALL: [Self; 3] = [Self::Mcp, Self::Code, Self::Agent];

    pub(crate) const fn family(self) -> Family {
        match self {
            Self::Mcp => Family::Mcp,
            Self::Code => Family::Code,
            Self::Agent => Family::Agent,
        }
    }
}

impl From<Family> for SessionKind {
    fn from(family: Family) -> Self {
        match family {
            Family::Mcp => Self::Mcp,
            Family::Code => Self::Code,
            Family::Agent => Self::Agent,
        }
    }
}

impl From<SessionState> for SessionStatus {
    fn from(state: SessionState) -> Self {
        match state {
            SessionState::Active => Self::Active,
            SessionState::Expired => Self::Expired,
            SessionState::Ended => Self::Ended,
        }
    }
}

impl From<SessionStatus> for SessionState {
    fn from(status: SessionStatus) -> Self {
        match status {
            SessionStatus::Active => Self::Active,
            SessionStatus::Expired => Self::Expired,
            SessionStatus::Ended => Self::Ended,
        }
    }
}

impl From<ServerHealth> for Health {
    fn from(health: ServerHealth) -> Self {
        match health {
            ServerHealth::Unknown => Self::Unknown,
            ServerHealth::Ok => Self::Ok,
            ServerHealth::Degraded => Self::Degraded,
            ServerHealth::Unavailable => Self::Unavailable,
        }
    }
}
