//! The digest of a session: what logs, pages and operators call it by, instead of its key, which is a secret.
//!
//! Invariant: the digest follows from the key alone, and is the same in the module and in every gateway.

use sha2::{Digest as _, Sha256};

use crate::names::{NameError, Problem};

/// The text before the id in the keys of MCP sessions.
pub const MCP_HEAD: &str = "session_affinity:";
/// The text before server, user and language in the keys of code sessions.
pub const CODE_HEAD: &str = "code_exec_session:";
/// The text before server, user and parent in the keys of agent sessions.
pub const AGENT_HEAD: &str = "agent_session:";

/// Digits of a whole digest.
pub const DIGEST_DIGITS: usize = 16;
/// Fewest digits of the beginning of a digest: with fewer, too many sessions would match.
pub const DIGEST_DIGITS_MIN: usize = 4;
/// Bits of a digit.
const DIGIT_BITS: usize = 4;

/// The first 64 bits of the SHA-256 of a key's own part, that which no other key under its prefix has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionDigest(u64);

impl SessionDigest {
    /// The digest of the session under this key.
    #[must_use]
    pub fn of_key(key: &[u8]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(own_part(key)));
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The high and the low half: as ordered as the whole.
    pub(crate) const fn halves(self) -> [u32; 2] {
        [(self.0 >> 32) as u32, (self.0 & 0xffff_ffff) as u32]
    }
}

impl std::fmt::Display for SessionDigest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// The first digits of a digest, or all of them: the digests from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestPrefix {
    pub(crate) first: SessionDigest,
    pub(crate) last: SessionDigest,
}

impl DigestPrefix {
    /// Parses 4 to 16 hexadecimal digits in lower case.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &[u8]) -> Result<Self, NameError> {
        let what = "digest";
        let alphabet = Problem::Alphabet("4 to 16 hexadecimal digits in lower case are expected");
        let fail = |problem| Err(NameError { what, problem });
        if !(DIGEST_DIGITS_MIN..=DIGEST_DIGITS).contains(&text.len()) {
            return fail(alphabet);
        }
        let mut first = 0;
        for byte in text {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return fail(alphabet),
            };
            first = first << DIGIT_BITS | u64::from(digit);
        }
        let missing = (DIGEST_DIGITS - text.len()) * DIGIT_BITS;
        Ok(Self {
            first: SessionDigest(first << missing),
            last: SessionDigest(first << missing | ((1 << missing) - 1)),
        })
    }

    /// Whether the digest begins so.
    #[must_use]
    pub fn matches(self, digest: SessionDigest) -> bool {
        (self.first..=self.last).contains(&digest)
    }
}

/// The part of a key that no other key of its kind has: what follows the head of its kind, or if it is of no kind of
/// session that gateways make, what follows its first colon.
#[must_use]
pub fn own_part(key: &[u8]) -> &[u8] {
    split_key(key).own
}

/// A key in parts.
pub(crate) struct KeyParts<'k> {
    /// What the keys of its kind begin with, up to and with a colon.
    pub(crate) head: &'k [u8],
    pub(crate) own: &'k [u8],
    pub(crate) kind: Option<KeyKind>,
}

/// The kind of a session, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Of an MCP client: its own part is a secret.
    Mcp,
    /// Of code or of an agent: its own part begins with the server, and a colon.
    AtServer,
}

/// Finds the first place in the key where the head of a kind begins, at its start or after a colon.
pub(crate) fn split_key(key: &[u8]) -> KeyParts<'_> {
    const HEADS: [(&str, KeyKind); 3] = [
        (MCP_HEAD, KeyKind::Mcp),
        (CODE_HEAD, KeyKind::AtServer),
        (AGENT_HEAD, KeyKind::AtServer),
    ];
    let after_colons = key.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let starts = std::iter::once(0).chain(after_colons.map(|(place, _)| place + 1));
    for start in starts {
        let rest = key.get(start..).unwrap_or_default();
        for (head, kind) in HEADS {
            if rest.starts_with(head.as_bytes()) {
                return parts(key, start + head.len(), Some(kind));
            }
        }
    }
    let colon = key.iter().position(|byte| *byte == b':');
    parts(key, colon.map_or(0, |colon| colon + 1), None)
}

fn parts(key: &[u8], head_len: usize, kind: Option<KeyKind>) -> KeyParts<'_> {
    let (head, own) = key.split_at_checked(head_len).unwrap_or((&[], key));
    KeyParts { head, own, kind }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_key_has_a_part_of_its_own() {
        for (key, own) in [
            ("mcpgw:session_affinity:s1", "s1"),
            (
                "mcpgw:session_affinity:a:agent_session:b",
                "a:agent_session:b",
            ),
            ("a:b:session_affinity:s1", "s1"),
            ("session_affinity:s1", "s1"),
            ("mcpgw:code_exec_session:box:zoe:python", "box:zoe:python"),
            ("mcpgw:agent_session:claude:zoe:p1", "claude:zoe:p1"),
            ("mcpgw:xagent_session:p1", "xagent_session:p1"),
            ("mcpgw:other", "other"),
            ("mcpgw:a:1", "a:1"),
            ("other", "other"),
            ("mcpgw:", ""),
            ("", ""),
        ] {
            assert_eq!(own_part(key.as_bytes()), own.as_bytes(), "{key}");
        }
    }

    #[test]
    fn it_is_the_head_of_sha256() {
        let digest = SessionDigest::of_key(b"mcpgw:session_affinity:abc");
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea");
        assert_eq!(digest.halves(), [0xba78_16bf, 0x8f01_cfea]);
        for wanted in ["ba78", "ba7816bf8f01cfe", "ba7816bf8f01cfea"] {
            let prefix = DigestPrefix::parse(wanted.as_bytes()).unwrap();
            assert!(prefix.matches(digest), "{wanted}");
        }
        for other in ["ba79", "0000", "ffff", "ba7816bf8f01cfeb"] {
            let prefix = DigestPrefix::parse(other.as_bytes()).unwrap();
            assert!(!prefix.matches(digest), "{other}");
        }
    }

    #[test]
    fn only_digits_in_lower_case_begin_a_digest() {
        for bad in ["", "ba7", "BA78", "ba7g", "ba7816bf8f01cfea0", "ba78 "] {
            assert!(DigestPrefix::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
