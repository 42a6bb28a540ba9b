//! Digests that replace secrets in logs, headers and keys.

use sha2::{Digest, Sha256};

/// Number of digits of [`short`].
pub const SHORT_DIGITS: usize = 16;

/// The first 16 hex digits of the SHA-256 of `text`, which must be an unguessable secret: enough to identify one of
/// billions of sessions in logs, too few to recover the text.
#[must_use]
pub fn short(text: &str) -> Box<str> {
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(text.as_bytes()));
    hex_digits(&[a, b, c, d, e, f, g, h]).into()
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
    fn the_digest_is_that_of_sha256() {
        assert_eq!(&*short("abc"), "ba7816bf8f01cfea");
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
