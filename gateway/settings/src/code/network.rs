//! Network access of code: none, or public addresses over HTTP through the gateway.

use crate::reader::Reader;
use crate::setting::Integer;

/// Connections where HTTP is allowed and their number is not said.
const CONNECTIONS_DEFAULT: u32 = 8;

/// Network access of code.
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
    pub(super) fn new(is_http_allowed: bool, connections: u32) -> Self {
        let connections_max = match connections {
            0 => CONNECTIONS_DEFAULT,
            written => written,
        };
        match is_http_allowed {
            true => Self::PublicHttp { connections_max },
            false => Self::None,
        }
    }
}

/// Refuses a number of connections where raw HTTP is not allowed.
pub(super) fn parse_connections(
    reader: &mut Reader<'_>,
    row: &'static Integer,
    is_http_allowed: bool,
) -> u32 {
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
