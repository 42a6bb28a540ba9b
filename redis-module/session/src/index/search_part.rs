//! The part of a name to search for: in what is shown of a session and known to an index.
//!
//! Invariants: the id of an MCP session is a secret and is never searched; upper and lower case of ASCII are the same.

use crate::limits::{SEARCH_BYTES_MAX, SEARCH_BYTES_MIN};
use crate::names::{NameError, Problem};
use crate::record::Record;
use crate::session_digest::{DigestPrefix, KeyKind, SessionDigest, split_key};
use crate::view::RecordView;

/// A part of the principal, of a server, an instance, an owner or a driver, or of the key's own part if that is no
/// secret; or the beginning of the digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPart {
    lower: Box<[u8]>,
    /// If it may be that of a digest.
    pub(super) digest: Option<DigestPrefix>,
}

impl SearchPart {
    /// Parses a part.
    ///
    /// # Errors
    /// Empty or over 512 bytes.
    pub fn parse(text: &[u8]) -> Result<Self, NameError> {
        let what = "text";
        if text.len() < SEARCH_BYTES_MIN {
            let problem = Problem::Empty;
            return Err(NameError { what, problem });
        }
        if text.len() > SEARCH_BYTES_MAX {
            let problem = Problem::TooLong(SEARCH_BYTES_MAX);
            return Err(NameError { what, problem });
        }
        let lower: Box<[u8]> = text.to_ascii_lowercase().into();
        Ok(Self {
            digest: DigestPrefix::parse(&lower).ok(),
            lower,
        })
    }

    /// Whether the record under `key` has it.
    #[must_use]
    pub fn is_in(&self, key: &[u8], record: &Record) -> bool {
        let of_bindings = record.bindings.iter().flat_map(|(server, binding)| {
            let owner = binding.owner.as_ref();
            [
                Some(server.as_str()),
                Some(binding.instance.as_str()),
                Some(binding.driver.as_str()),
                owner.map(|owner| owner.as_str()),
            ]
        });
        self.is_in_names(key, record.principal.as_str(), of_bindings)
    }

    /// The same for a record as returned to a caller.
    #[must_use]
    pub fn is_in_view(&self, key: &[u8], record: &RecordView) -> bool {
        let of_bindings = record.bindings.iter().flat_map(|binding| {
            let owner = binding.owner.as_ref();
            [
                Some(binding.server.as_str()),
                Some(binding.instance.as_str()),
                Some(binding.driver.as_str()),
                owner.map(|owner| owner.worker.as_str()),
            ]
        });
        self.is_in_names(key, record.principal.as_str(), of_bindings)
    }

    fn is_in_names<'a>(
        &self,
        key: &[u8],
        principal: &str,
        of_bindings: impl Iterator<Item = Option<&'a str>>,
    ) -> bool {
        let steps = &mut 0;
        self.is_in_text(principal, steps)
            || self.is_in_key(key, steps)
            || of_bindings
                .flatten()
                .any(|name| self.is_in_text(name, steps))
            || (self.digest).is_some_and(|digest| digest.matches(SessionDigest::of_key(key)))
    }

    /// Whether it is in the part of the key that people see.
    pub(super) fn is_in_key(&self, key: &[u8], steps: &mut usize) -> bool {
        let parts = split_key(key);
        parts.kind == Some(KeyKind::AtServer) && self.is_in_bytes(parts.own, steps)
    }

    /// Whether it is in a name. Adds the bytes that were compared.
    pub(super) fn is_in_text(&self, text: &str, steps: &mut usize) -> bool {
        self.is_in_bytes(text.as_bytes(), steps)
    }

    fn is_in_bytes(&self, bytes: &[u8], steps: &mut usize) -> bool {
        *steps += bytes.len();
        let Some((first, rest)) = self.lower.split_first() else {
            return true;
        };
        let candidates = bytes.windows(self.lower.len());
        candidates
            .filter(|window| {
                window
                    .first()
                    .is_some_and(|byte| byte.to_ascii_lowercase() == *first)
            })
            .any(|window| {
                *steps += rest.len();
                window
                    .get(1..)
                    .is_some_and(|window| window.eq_ignore_ascii_case(rest))
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_part_is_found_anywhere_and_in_any_case() {
        let part = |text: &str| SearchPart::parse(text.as_bytes()).unwrap();
        for (text, name, is_in) in [
            ("zoe", "zoe@example.org", true),
            ("EXAMPLE", "zoe@example.org", true),
            (".org", "zoe@EXAMPLE.ORG", true),
            ("aab", "aaab", true),
            ("zoe", "zo", false),
            ("zoe", "", false),
            ("zoe", "zo-e", false),
        ] {
            assert_eq!(part(text).is_in_text(name, &mut 0), is_in, "{text} {name}");
        }
        assert!(SearchPart::parse(b"").is_err());
        assert!(SearchPart::parse(&[b'x'; SEARCH_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn the_id_of_a_client_is_not_searched() {
        let part = SearchPart::parse(b"abc").unwrap();
        assert!(!part.is_in_key(b"mcpgw:session_affinity:abc", &mut 0));
        assert!(!part.is_in_key(b"mcpgw:abc", &mut 0));
        assert!(part.is_in_key(b"mcpgw:agent_session:claude:abc:p", &mut 0));
    }
}
