//! The keys under which records stand.
//!
//! Invariant: neither a key nor a session id is ever shown whole: both are secrets of the client that was given them.

use std::fmt;
use std::sync::Arc;

use mooring_session::names::{NameError, SessionId};
use sha2::{Digest, Sha256};

/// What stands between a store's prefix and the id in the key of an MCP session.
const MCP_SESSIONS: &str = "session_affinity:";

/// The key of one session's record. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    text: Arc<str>,
    id_start: usize,
}

impl SessionKey {
    /// The key of an MCP session: `<prefix>session_affinity:<id>`, where the prefix ends with a colon.
    #[must_use]
    pub fn mcp(prefix: &str, id: &SessionId) -> Self {
        let head = Self::head(prefix);
        Self {
            id_start: head.len(),
            text: (head + id.as_str()).into(),
        }
    }

    /// The key that a store named in an answer; none where it is not that of an MCP session under `prefix`, because a
    /// Redis may hold sessions of others too.
    pub(super) fn named(prefix: &str, key: &[u8]) -> Option<Self> {
        let rest = key.strip_prefix(prefix.as_bytes())?;
        let id = SessionId::parse(rest.strip_prefix(MCP_SESSIONS.as_bytes())?).ok()?;
        Some(Self::mcp(prefix, &id))
    }

    /// What the keys of all MCP sessions under `prefix` start with.
    pub(super) fn head(prefix: &str) -> String {
        format!("{prefix}{MCP_SESSIONS}")
    }

    /// The whole key: for the store, never for a log.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.text
    }

    /// The id of the session that stands under it.
    ///
    /// # Errors
    /// Never for a key made from a valid id.
    pub fn id(&self) -> Result<SessionId, NameError> {
        SessionId::parse(self.text.as_bytes().get(self.id_start..).unwrap_or(b""))
    }

    /// What stands before the id: all keys of this gateway's sessions start with it.
    pub(super) fn before_id(&self) -> &str {
        self.text.get(..self.id_start).unwrap_or("")
    }

    /// The first eight hexadecimal digits of the SHA-256 of the session's id: what logs call it.
    #[must_use]
    pub fn digest(&self) -> Box<str> {
        crate::digest::short(self.text.get(self.id_start..).unwrap_or(""))
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionKey({})", self.digest())
    }
}

/// The digest by which the initialize params of one client build are known: the SHA-256 of their JSON, in hex.
/// It is what the record's label `init` holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitDigest(Arc<str>);

impl InitDigest {
    /// The digest of these params.
    #[must_use]
    pub fn of(json: &str) -> Self {
        Self(hex_sha256(json).into())
    }

    /// Reads a digest back from a label; none where it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(is_hex)).then(|| Self(text.into()))
    }

    /// The digest as text: 64 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The plain key `<prefix>init:<digest>` that holds the params.
    pub(super) fn key(&self, prefix: &str) -> String {
        format!("{prefix}init:{}", self.0)
    }
}

fn hex_sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            for nibble in [byte >> 4, byte & 15] {
                hex.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
            hex
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_key_names_its_session_and_hides_it() {
        let id = SessionId::parse(b"abc:def").unwrap();
        let key = SessionKey::mcp("mcpgw:", &id);
        assert_eq!(key.secret(), "mcpgw:session_affinity:abc:def");
        assert_eq!(key.id().unwrap(), id);
        assert_eq!(key.digest().len(), 8);
        assert!(!format!("{key:?}").contains("abc"));
    }

    #[test]
    fn a_named_key_is_taken_where_it_is_an_mcp_session_under_the_prefix() {
        let named = |key: &[u8]| SessionKey::named("mcpgw:", key);
        let id = SessionId::parse(b"abc:def").unwrap();
        assert_eq!(
            named(b"mcpgw:session_affinity:abc:def"),
            Some(SessionKey::mcp("mcpgw:", &id))
        );
        for foreign in [
            &b"other:session_affinity:abc"[..],
            b"mcpgw:code:abc",
            b"mcpgw:session_affinity:",
            b"mcpgw:session_affinity:a b",
            b"mcpgw:session_affinity:a\xff",
            b"",
        ] {
            assert_eq!(named(foreign), None, "{}", foreign.escape_ascii());
        }
    }

    #[test]
    fn a_digest_reads_back_and_nothing_else_does() {
        let digest = InitDigest::of("");
        assert_eq!(
            digest.as_str(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(InitDigest::parse(digest.as_str()), Some(digest.clone()));
        assert_eq!(InitDigest::parse("e3b0"), None);
        assert_eq!(InitDigest::parse(&"G".repeat(64)), None);
        assert!(digest.key("mcpgw:").starts_with("mcpgw:init:e3b0"));
    }
}
