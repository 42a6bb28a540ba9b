//! What stands for a secret in logs, headers and keys.

use sha2::{Digest, Sha256};

/// The first 8 hex digits of the SHA-256 of `text`: enough to join log lines, too little to find the text.
#[must_use]
pub(crate) fn short(text: &str) -> Box<str> {
    let hash = Sha256::digest(text.as_bytes());
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash);
    format!("{a:02x}{b:02x}{c:02x}{d:02x}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_sha256() {
        assert_eq!(&*short("abc"), "ba7816bf");
    }
}
