//! Digests that replace secrets in logs, headers and keys.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

/// The first 8 hex digits of the SHA-256 of `text`: enough to join log lines, too little to find the text.
#[must_use]
pub fn short(text: &str) -> Box<str> {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(text.as_bytes()));
    hex_digits(&[a, b, c, d]).into()
}

/// 8 hex digits that stand for a name in the log of this process alone. Names can be guessed, and [`short`] of a guess
/// compared; this has a random key.
#[must_use]
pub fn of_name(name: &str) -> Box<str> {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    format!("{:08x}", KEY.hash_one(name) >> 32).into()
}

/// The SHA-256 of `bytes`, as 64 hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    hex_digits(&Sha256::digest(bytes))
}

/// Formatting each byte would cost more than the digest, of which every call has two.
fn hex_digits(bytes: &[u8]) -> String {
    let digit = |nibble: u8| match nibble {
        0..10 => b'0' + nibble,
        _ => b'a' + (nibble - 10),
    };
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    String::from_utf8(digits.collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_always_the_same_and_not_its_plain_digest() {
        let ada = of_name("ada@example.org");
        assert_eq!((ada.len(), &ada), (8, &of_name("ada@example.org")));
        assert_ne!(ada, of_name("bob@example.org"));
        assert_ne!(ada, short("ada@example.org"));
    }

    #[test]
    fn the_digest_is_that_of_sha256() {
        assert_eq!(&*short("abc"), "ba7816bf");
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
