//! The digest of a request, which its reply repeats, so that a client can verify that the reply is to this request.
//!
//! Replies of Redis have no numbers: a client assigns them by their order. If a proxy or a defect drops, repeats or
//! swaps one, every later reply on the connection is assigned to the wrong request. Invariant: the digest is the same
//! in the module and in its clients, in all versions, and depends on nothing but the words of the request.

use std::fmt;

use crate::limits::{REQUEST_WORD_BYTES_MAX, REQUEST_WORDS_MAX};

/// The field of a reply that holds the digest, and the word before it at the end of an error.
pub const REQUEST_FIELD: &str = "request";

/// A hint of COMMAND INFO: replies of this command name their request.
pub const NAMES_REQUEST: &str = "names_request";

/// 64 bits over the words of a request as they were sent, starting with the command's name.
///
/// It protects against accidents, not against an attacker who chooses the words of two requests. The requests of
/// another client contain a session's key, which is a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDigest(u64);

impl RequestDigest {
    /// Length as text, in bytes.
    pub const HEX_BYTES: usize = 16;
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The digest of these words. It covers the first [`REQUEST_WORDS_MAX`] words and the first
    /// [`REQUEST_WORD_BYTES_MAX`] bytes of each.
    #[must_use]
    pub fn of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Self::START;
        for word in words.into_iter().take(REQUEST_WORDS_MAX) {
            let word = word.get(..REQUEST_WORD_BYTES_MAX).unwrap_or(word);
            // The length first, so that no two lists of words have the same bytes.
            digest = Self::mix(digest, word.len() as u64);
            let (blocks, rest) = word.as_chunks::<8>();
            for block in blocks {
                digest = Self::mix(digest, u64::from_le_bytes(*block));
            }
            if !rest.is_empty() {
                let mut block = [0; 8];
                for (to, from) in block.iter_mut().zip(rest) {
                    *to = *from;
                }
                digest = Self::mix(digest, u64::from_le_bytes(block));
            }
        }
        Self(digest)
    }

    /// Each step is a bijection of the digest, and of the block: requests that differ in one block differ.
    const fn mix(digest: u64, block: u64) -> u64 {
        let mixed = (digest ^ block).wrapping_mul(Self::FACTOR);
        mixed ^ (mixed >> 32)
    }

    /// As an integer reply: the same bits, as a signed number.
    #[must_use]
    pub const fn to_integer(self) -> i64 {
        self.0.cast_signed()
    }

    /// As text: sixteen hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> [u8; Self::HEX_BYTES] {
        let mut rest = self.0;
        let mut hex = [0; Self::HEX_BYTES];
        for digit in hex.iter_mut().rev() {
            let value = (rest & 15) as u8;
            *digit = if value < 10 {
                b'0' + value
            } else {
                b'a' - 10 + value
            };
            rest >>= 4;
        }
        hex
    }
}

impl fmt::Display for RequestDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(words: &[&[u8]]) -> String {
        RequestDigest::of(words.iter().copied()).to_string()
    }

    /// Clients in other languages compute the same: these figures never change.
    #[test]
    fn the_digest_is_that_of_the_documentation() {
        for (words, expected) in [
            (&[][..], "cbf29ce484222325"),
            (&[&b"WORKER.LIST"[..]], "804ce8709f89a985"),
            (
                &[b"SESSION.GET", b"mcpgw:session_affinity:s1"],
                "01041587e4a68f8c",
            ),
        ] {
            assert_eq!(digest(words), expected);
            let digest = RequestDigest::of(words.iter().copied());
            assert_eq!(digest.to_hex(), expected.as_bytes());
            assert_eq!(format!("{:016x}", digest.to_integer()), expected);
        }
    }

    #[test]
    fn requests_that_differ_anywhere_have_different_digests() {
        let requests: [&[&[u8]]; 10] = [
            &[b"SESSION.GET", b"a"],
            &[b"SESSION.GET", b"b"],
            &[b"SESSION.GET", b"a\0"],
            &[b"SESSION.GET", b"", b"a"],
            &[b"SESSION.GET", b"a", b""],
            &[b"SESSION.GETa"],
            &[b"SESSION.KILL", b"a"],
            &[b"SESSION.GET", b"aaaaaaaa"],
            &[b"SESSION.GET", b"aaaaaaaaa"],
            &[b"SESSION.GET", b"a", b"aaaaaaa"],
        ];
        let mut digests: Vec<_> = requests.iter().map(|words| digest(words)).collect();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), requests.len());
    }

    #[test]
    fn of_a_request_without_measure_only_the_beginning_is_read() {
        let long = vec![b'a'; REQUEST_WORD_BYTES_MAX];
        let longer = vec![b'a'; REQUEST_WORD_BYTES_MAX + 1];
        assert_eq!(digest(&[&long]), digest(&[&longer]));
        let most = vec![&b"a"[..]; REQUEST_WORDS_MAX];
        let more = vec![&b"a"[..]; REQUEST_WORDS_MAX + 1];
        assert_eq!(digest(&most), digest(&more));
    }
}
