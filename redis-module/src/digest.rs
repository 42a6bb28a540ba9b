//! The digests that log lines show instead of secrets. Gateways log the same digests of sessions.

use sha2::{Digest as _, Sha256};

use crate::settings::prefixes;

/// Bytes of the hash that are shown.
const SHOWN_BYTES: usize = 8;
/// The text between a gateway's prefix and the id of a client's session.
const OF_CLIENTS: &[u8] = b"session_affinity:";

/// The first 16 hex digits of the SHA-256 of a secret: enough to follow it through a log, too little to use it.
pub(crate) fn digest(secret: &[u8]) -> String {
    let hash = Sha256::digest(secret);
    hash.iter()
        .take(SHOWN_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The digest of the session under a key: that of the key's own part.
pub(crate) fn session_digest(key: &[u8]) -> String {
    digest(own_part(key, &prefixes::text()))
}

/// The key without its longest prefix, and without the text that follows it in every key of a client's session.
fn own_part<'a>(key: &'a [u8], prefixes: &str) -> &'a [u8] {
    let rests = prefixes
        .split(' ')
        .filter_map(|prefix| key.strip_prefix(prefix.as_bytes()));
    let rest = rests.min_by_key(|rest| rest.len()).unwrap_or(key);
    rest.strip_prefix(OF_CLIENTS).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_head_of_sha256() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea");
    }

    #[test]
    fn a_session_is_named_as_gateways_name_it() {
        const PREFIXES: &str = "mcpgw: mcpgw:code_exec_session: mcpgw:agent_session:";
        for (key, own) in [
            ("mcpgw:session_affinity:s1", "s1"),
            ("mcpgw:code_exec_session:box:zoe:python", "box:zoe:python"),
            ("mcpgw:agent_session:claude:zoe:p1", "claude:zoe:p1"),
            ("mcpgw:other", "other"),
            ("foreign:s1", "foreign:s1"),
        ] {
            assert_eq!(own_part(key.as_bytes(), PREFIXES), own.as_bytes(), "{key}");
        }
        assert_eq!(own_part(b"x:session_affinity:s1", "x:"), b"s1");
    }
}
