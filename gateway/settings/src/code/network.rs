//! What of the network code reaches: nothing, or public addresses over HTTP through the gateway.

use crate::reader::Reader;
use crate::rows::inherited;
use crate::setting::Integer;

/// Connections where HTTP is allowed and their number is not said.
const CONNECTIONS_DEFAULT: u32 = 8;

inherited! {
    /// What is written of the network.
    pub(super) struct NetworkDraft {
        /// Whether code may reach public addresses over HTTP and HTTPS, through a proxy of the gateway. Loopback, private and
        /// link-local addresses, the gateway and its store are never reached.
        is_http_allowed: bool = Switch(
            "code.default_allow_raw_http" / "sandbox_policy.allow_raw_http"
                / "sandbox_policy.permissions.network.allow_raw_http",
            false,
        ).seed("CODE_EXECUTION_DEFAULT_ALLOW_RAW_HTTP"),
        /// How many connections a run may have open at the same time where raw HTTP is allowed; 0 then means 8. Where it is
        /// not allowed, there is no other number than 0.
        connections: u32 = Integer(
            "code.default_max_network_connections" / "sandbox_policy.max_network_connections"
                / "sandbox_policy.limits.max_network_connections",
            "connections", 0, 0..=64,
        ).seed("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS")
            => |reader, row| parse_connections(reader, row, is_http_allowed),
    }
}

/// What of the network code reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// Nothing.
    None,
    /// Public addresses over HTTP and HTTPS, through the gateway's proxy.
    PublicHttp {
        /// Most connections of one run at the same time, 1 to 64.
        connections_max: u32,
    },
}

impl NetworkDraft {
    pub(super) fn policy(&self) -> NetworkPolicy {
        match (self.is_http_allowed, self.connections) {
            (false, _) => NetworkPolicy::None,
            (true, 0) => NetworkPolicy::PublicHttp {
                connections_max: CONNECTIONS_DEFAULT,
            },
            (true, connections_max) => NetworkPolicy::PublicHttp { connections_max },
        }
    }
}

/// Connections that nothing may open are a permission that is not there.
fn parse_connections(reader: &mut Reader<'_>, row: &'static Integer, is_http_allowed: bool) -> u32 {
    let connections: u32 = reader.read(row);
    if connections > 0 && !is_http_allowed && !reader.was_refused(row) {
        reader.refuse(
            row,
            connections.to_string(),
            "raw HTTP is not allowed, so code can open none",
            "0, or allow_raw_http = true beside it",
        );
    }
    connections
}
