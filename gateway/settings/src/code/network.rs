//! What of the network code reaches: nothing, or public addresses over HTTP through the gateway.

use super::pair::{Pair, integers, switches};
use crate::reader::Reader;
use crate::setting::{Integer, Setting, SettingInfo, Switch};

/// Connections where HTTP is allowed and their number is not said.
const CONNECTIONS_DEFAULT: u32 = 8;

const RAW_HTTP: &str = "Whether code may reach public addresses over HTTP and HTTPS, through a proxy of the gateway. Loopback, \
                        private and link-local addresses, the gateway and its store are never reached.";

const ALLOW_RAW_HTTP: Pair<Switch> = switches(
    SettingInfo::new("code.default_allow_raw_http", RAW_HTTP)
        .seed("CODE_EXECUTION_DEFAULT_ALLOW_RAW_HTTP"),
    SettingInfo::new("servers.sandbox_policy.allow_raw_http", RAW_HTTP)
        .aliases(&["sandbox_policy.permissions.network.allow_raw_http"])
        .unset("as `code.default_allow_raw_http` says"),
    false,
);

const CONNECTIONS: &str = "How many connections a run may have open at the same time where raw HTTP is allowed; 0 then means \
                           8. Where it is not allowed, there is no other number than 0.";

const MAX_NETWORK_CONNECTIONS: Pair<Integer> = integers(
    SettingInfo::new("code.default_max_network_connections", CONNECTIONS)
        .seed("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS"),
    SettingInfo::new(
        "servers.sandbox_policy.max_network_connections",
        CONNECTIONS,
    )
    .aliases(&["sandbox_policy.limits.max_network_connections"])
    .unset("as `code.default_max_network_connections` says"),
    "connections",
    0,
    (0, 64),
);

/// The rows of `[code]`.
pub(super) const INHERITED_SETTINGS: &[Setting] = &[
    Setting::Integer(&MAX_NETWORK_CONNECTIONS.standard),
    Setting::Switch(&ALLOW_RAW_HTTP.standard),
];

/// The rows of `sandbox_policy`.
pub(super) const OWN_SETTINGS: &[Setting] = &[
    Setting::Integer(&MAX_NETWORK_CONNECTIONS.own),
    Setting::Switch(&ALLOW_RAW_HTTP.own),
];

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

impl NetworkPolicy {
    fn new(is_http_allowed: bool, connections: u64) -> Self {
        match (is_http_allowed, u32::try_from(connections)) {
            (false, _) => Self::None,
            (true, Ok(connections_max @ 1..)) => Self::PublicHttp { connections_max },
            (true, _) => Self::PublicHttp {
                connections_max: CONNECTIONS_DEFAULT,
            },
        }
    }
}

/// What `[code]` says for every server.
pub(super) fn parse_defaults(reader: &mut Reader<'_>) -> NetworkPolicy {
    let is_http_allowed = reader.switch(&ALLOW_RAW_HTTP.standard);
    let written = parse_connections(reader, &MAX_NETWORK_CONNECTIONS.standard, is_http_allowed);
    NetworkPolicy::new(is_http_allowed, written.unwrap_or(0))
}

/// What a server says, and the standard where it says nothing.
pub(super) fn parse_overrides(reader: &mut Reader<'_>, standard: NetworkPolicy) -> NetworkPolicy {
    let (is_http_allowed, connections) = match standard {
        NetworkPolicy::None => (false, 0),
        NetworkPolicy::PublicHttp { connections_max } => (true, connections_max.into()),
    };
    let is_http_allowed = reader.switch_or(&ALLOW_RAW_HTTP.own, is_http_allowed);
    let written = parse_connections(reader, &MAX_NETWORK_CONNECTIONS.own, is_http_allowed);
    NetworkPolicy::new(is_http_allowed, written.unwrap_or(connections))
}

/// The number, where there is one. Connections that nothing may open are a permission that is not there.
fn parse_connections(
    reader: &mut Reader<'_>,
    setting: &'static Integer,
    is_http_allowed: bool,
) -> Option<u64> {
    let connections = reader.integer_if_written(setting)?;
    if connections > 0 && !is_http_allowed && !reader.was_refused(&setting.about) {
        reader.refuse(
            &setting.about,
            connections.to_string(),
            "raw HTTP is not allowed, so code can open none".to_owned(),
            "0, or allow_raw_http = true beside it".to_owned(),
        );
    }
    Some(connections)
}
