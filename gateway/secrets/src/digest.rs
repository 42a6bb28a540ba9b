//! Digests that replace secrets in logs, headers and keys.

use sha2::{Digest, Sha256};

/// The first 8 hex digits of the SHA-256 of `text`: enough to join log lines, too little to find the text.
#[must_use]
pub fn short(text: &str) -> Box<str> {
    let hash = Sha256::digest(text.as_bytes());
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash);
    format!("{a:02x}{b:02x}{c:02x}{d:02x}").into()
}

/// The SHA-256 of `bytes`, as 64 hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_sha256() {
        assert_eq!(&*short("abc"), "ba7816bf");
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
