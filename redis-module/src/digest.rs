//! What a log line says instead of a secret.

use sha2::{Digest as _, Sha256};

/// The first eight hex digits of the SHA-256 of a key or a session id: enough to follow one through a log, too little
/// to use it.
pub(crate) fn digest(secret: &[u8]) -> String {
    let hash = Sha256::digest(secret);
    hash.iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_head_of_sha256() {
        assert_eq!(super::digest(b"abc"), "ba7816bf");
    }
}
