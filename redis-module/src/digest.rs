//! The digests that log lines show instead of secrets. Gateways log the same digests of sessions.

use mooring_session::SessionDigest;
use sha2::{Digest as _, Sha256};

/// Bytes of the hash that are shown.
const SHOWN_BYTES: usize = 8;

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
    SessionDigest::of_key(key).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_head_of_sha256() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea");
    }
}
