//! How a server of kind `http` gets the secret that each user has stored for it.

use http::HeaderName;
use http::header::AUTHORIZATION;

use super::headers::parse_header_name;
use crate::reader::{Reader, Reason, text};
use crate::rows::settings;

/// Longest prefix in bytes.
const PREFIX_BYTES_MAX: usize = 64;
const HEADER_SHAPE: &str = "the name of an HTTP header, such as Authorization; not one of the connection and of MCP itself";

settings! {
    /// The rows of `servers.vault`.
    pub(super) struct VaultRows {
        /// The header in which requests have the secret that their user has stored for this server. A user who has stored
        /// none is refused. Where `servers.headers` has the same header, that is sent with what the gateway does by itself,
        /// such as listing tools for code.
        header: Option<HeaderName> = Text("servers.vault.header", 64, HEADER_SHAPE, None)
            .unset("users store no secrets for this server") => text(parse_header_name),
        /// What the value of this header begins with, such as `"Bearer "` with its space.
        prefix: Option<String> = Text("servers.vault.prefix", PREFIX_BYTES_MAX, "printable ASCII", None)
            .unset("the secret is the whole value") => text(parse_prefix),
    }
}

/// How a server gets the secrets of its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSecretSettings {
    /// The header of requests.
    pub header: HeaderName,
    /// What its value begins with.
    pub prefix: String,
}

impl VaultRows {
    /// None where users store nothing. `has_oauth` and `forwards_identity` are the server's other credentials.
    pub(super) fn parse(
        reader: &mut Reader<'_>,
        has_oauth: bool,
        forwards_identity: bool,
    ) -> Option<UserSecretSettings> {
        let rows = Self::read(reader);
        let row = &Self::header;
        let Some(header) = rows.header else {
            if rows.prefix.is_some() && !reader.was_refused(row) {
                let reason = "it is missing, so that no secret would be sent";
                reader.refuse(row, "", reason, HEADER_SHAPE);
            }
            return None;
        };
        let other = match (has_oauth, forwards_identity && header == AUTHORIZATION) {
            (true, _) => Some("servers.oauth is set, and a request has the one or the other"),
            (_, true) => Some(
                "servers.forward_identity is set, and a request has only one Authorization header",
            ),
            (false, false) => None,
        };
        if let Some(reason) = other {
            reader.refuse(
                row,
                format!("{:?}", header.as_str()),
                reason,
                "one of the two",
            );
        }
        Some(UserSecretSettings {
            header,
            prefix: rows.prefix.unwrap_or_default(),
        })
    }
}

fn parse_prefix(text: &str) -> Result<String, Reason> {
    match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => Ok(text.to_owned()),
        false => Err("it has characters that are not printable ASCII".to_owned()),
    }
}
