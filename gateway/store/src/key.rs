//! The keys of records, in families: a key's prefix shows the kind of session.
//!
//! Invariant: keys and session ids are never shown whole: both are secrets of the client, or reveal the user.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mooring_session::limits::KEY_BYTES_MAX;
use mooring_session::names::{NameError, Problem, ServerName, SessionId};
use mooring_session::session_digest;

/// Server, user, and a third: the language of code, or the parent of an agent.
const PARTS: usize = 3;

/// The kind of session that a key belongs to. Each family is listed and cleaned up separately, because it leaves other
/// resources: upstream sessions, or a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Of MCP clients: `<prefix>session_affinity:<id>`.
    #[default]
    Mcp,
    /// Of code: `<prefix>code_exec_session:<server>:<user_slug>:<language>`.
    Code,
    /// Of command-line agents: `<prefix>agent_session:<server>:<user_slug>:<parent>`. They leave nothing to clean up,
    /// so there is no reaper for them: their tombstones expire.
    Agent,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 3] = [Self::Mcp, Self::Code, Self::Agent];

    /// The part of a key between the store's prefix and the rest.
    const fn word(self) -> &'static str {
        match self {
            Self::Mcp => session_digest::MCP_HEAD,
            Self::Code => session_digest::CODE_HEAD,
            Self::Agent => session_digest::AGENT_HEAD,
        }
    }

    /// The prefixes of each family's keys under `prefix`.
    pub(super) fn heads(prefix: &str) -> Vec<String> {
        Self::ALL.map(|family| family.head(prefix)).to_vec()
    }

    /// The prefix of this family's keys under `prefix`.
    pub(super) fn head(self, prefix: &str) -> String {
        format!("{prefix}{}", self.word())
    }
}

/// The key of one session's record. Cheap to clone. Two keys are the same where their text is.
#[derive(Clone)]
pub struct SessionKey {
    text: Arc<str>,
    family: Family,
    head_len: usize,
    id: Option<SessionId>,
}

impl SessionKey {
    /// The key of an MCP session: `<prefix>session_affinity:<id>`, where the prefix ends with a colon.
    #[must_use]
    pub fn mcp(prefix: &str, id: &SessionId) -> Self {
        Self::of(Family::Mcp, prefix, id.as_str(), Some(id.clone()))
    }

    /// The key of a code session: `<prefix>code_exec_session:<server>:<user_slug>:<language>`. Only the record has the
    /// id.
    ///
    /// # Errors
    /// A part is empty, holds a colon, a space or what is not visible ASCII, or the key is longer than 1024 bytes.
    pub fn code(
        prefix: &str,
        server: &ServerName,
        user_slug: &str,
        language: &str,
        id: &SessionId,
    ) -> Result<Self, NameError> {
        Self::of_parts(Family::Code, prefix, server, [user_slug, language], id)
    }

    /// The key of an agent session: `<prefix>agent_session:<server>:<user_slug>:<parent_part>`. Only the record has the
    /// id.
    ///
    /// # Errors
    /// A part is empty, holds a colon, a space or what is not visible ASCII, or the key is longer than 1024 bytes.
    pub fn agent(
        prefix: &str,
        server: &ServerName,
        user_slug: &str,
        parent_part: &str,
        id: &SessionId,
    ) -> Result<Self, NameError> {
        Self::of_parts(Family::Agent, prefix, server, [user_slug, parent_part], id)
    }

    fn of_parts(
        family: Family,
        prefix: &str,
        server: &ServerName,
        [user_slug, last]: [&str; 2],
        id: &SessionId,
    ) -> Result<Self, NameError> {
        let rest = format!("{}:{user_slug}:{last}", server.as_str());
        check_parts(family, prefix, &rest)?;
        Ok(Self::of(family, prefix, &rest, Some(id.clone())))
    }

    /// Parses a key that a store returned; none if it is of no family under `prefix`, since a Redis may also contain
    /// other sessions. The key of a code or agent session does not contain the session's id.
    pub(super) fn named(prefix: &str, key: &[u8]) -> Option<Self> {
        let rest = key.strip_prefix(prefix.as_bytes())?;
        let (family, rest) = Family::ALL.into_iter().find_map(|family| {
            let rest = rest.strip_prefix(family.word().as_bytes())?;
            Some((family, rest))
        })?;
        match family {
            Family::Mcp => Some(Self::mcp(prefix, &SessionId::parse(rest).ok()?)),
            Family::Code | Family::Agent => {
                let rest = std::str::from_utf8(rest).ok()?;
                check_parts(family, prefix, rest).ok()?;
                Some(Self::of(family, prefix, rest, None))
            }
        }
    }

    fn of(family: Family, prefix: &str, rest: &str, id: Option<SessionId>) -> Self {
        let head = family.head(prefix);
        Self {
            head_len: head.len(),
            text: (head + rest).into(),
            family,
            id,
        }
    }

    /// The whole key: for the store, never for a log.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.text
    }

    /// Which sessions it is of.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The id of the session; none for a code or agent session whose key a store returned.
    #[must_use]
    pub const fn id(&self) -> Option<&SessionId> {
        self.id.as_ref()
    }

    /// What follows the head of its family: the id of an MCP session; server, user and a third part of any other. A
    /// secret, like the key.
    #[must_use]
    pub fn place(&self) -> &str {
        self.text.get(self.head_len..).unwrap_or("")
    }

    /// The common start of all keys of its family under its prefix.
    pub(super) fn head(&self) -> &str {
        self.text.get(..self.head_len).unwrap_or("")
    }

    /// The first 16 hexadecimal digits of the SHA-256 of what follows that: what logs call it. For an MCP session that
    /// is its id.
    #[must_use]
    pub fn digest(&self) -> Box<str> {
        mooring_secrets::digest::short(self.place())
    }
}

impl PartialEq for SessionKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SessionKey {}

impl Hash for SessionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionKey({})", self.digest())
    }
}

/// Whether `rest` is server, user and a third, so that no two of them share a key.
fn check_parts(family: Family, prefix: &str, rest: &str) -> Result<(), NameError> {
    let (what, expected) = match family {
        Family::Agent => (
            "agent session",
            "a server, a user and a parent of visible ASCII without colons are expected",
        ),
        Family::Mcp | Family::Code => (
            "code session",
            "a server, a user and a language of visible ASCII without colons are expected",
        ),
    };
    let fail = |problem| Err(NameError { what, problem });
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic());
    if rest.split(':').count() != PARTS || !rest.split(':').all(is_part) {
        return fail(Problem::Alphabet(expected));
    }
    if family.head(prefix).len() + rest.len() > KEY_BYTES_MAX {
        return fail(Problem::TooLong(KEY_BYTES_MAX));
    }
    Ok(())
}

/// Identifies the initialize params of one client build: the SHA-256 of their JSON, in hex. The record's label `init`
/// contains it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitDigest(Arc<str>);

impl InitDigest {
    /// The digest of these params.
    #[must_use]
    pub fn of(json: &str) -> Self {
        Self(mooring_secrets::digest::hex(json.as_bytes()).into())
    }

    /// Reads a digest back from a label; none if it is invalid.
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

    /// The plain key `<prefix>init:<digest>` of the params.
    pub(super) fn key(&self, prefix: &str) -> String {
        format!("{prefix}init:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn code(server: &str, user_slug: &str, language: &str) -> Result<SessionKey, NameError> {
        let server = ServerName::parse(server.as_bytes()).unwrap();
        let id = SessionId::parse(b"0123456789abcdef01234567").unwrap();
        SessionKey::code("mcpgw:", &server, user_slug, language, &id)
    }

    #[test]
    fn a_key_names_its_session_and_hides_it() {
        let id = SessionId::parse(b"abc:def").unwrap();
        let key = SessionKey::mcp("mcpgw:", &id);
        assert_eq!(key.secret(), "mcpgw:session_affinity:abc:def");
        assert_eq!((key.id(), key.family()), (Some(&id), Family::Mcp));
        assert_eq!(key.head(), "mcpgw:session_affinity:");
        assert_eq!(key.digest().len(), 16);
        assert!(!format!("{key:?}").contains("abc"));
    }

    #[test]
    fn a_code_session_has_its_id_beside_its_key() {
        let key = code("sandbox", "zoe-0011223344556677", "python").unwrap();
        assert_eq!(
            key.secret(),
            "mcpgw:code_exec_session:sandbox:zoe-0011223344556677:python"
        );
        assert_eq!(key.family(), Family::Code);
        assert_eq!(key.id().unwrap().as_str(), "0123456789abcdef01234567");
        let named = SessionKey::named("mcpgw:", key.secret().as_bytes()).unwrap();
        assert_eq!(named, key, "the same key, however it was made");
        assert_eq!((named.id(), named.digest()), (None, key.digest()));
        assert!(!format!("{key:?}").contains("zoe"));
    }

    #[test]
    fn an_agent_session_is_a_family_of_its_own() {
        let server = ServerName::parse(b"coder").unwrap();
        let id = SessionId::parse(b"0123456789abcdef01234567").unwrap();
        let agent =
            |user: &str, parent: &str| SessionKey::agent("mcpgw:", &server, user, parent, &id);
        let key = agent("zoe-0011223344556677", "chat-1.a_B").unwrap();
        assert_eq!(
            key.secret(),
            "mcpgw:agent_session:coder:zoe-0011223344556677:chat-1.a_B"
        );
        assert_eq!((key.family(), key.id()), (Family::Agent, Some(&id)));
        let named = SessionKey::named("mcpgw:", key.secret().as_bytes()).unwrap();
        assert_eq!(
            (&named, named.family(), named.id()),
            (&key, Family::Agent, None)
        );
        assert!(agent("zoe", "~0123456789abcdef0123456789abcdef").is_ok());
        for (user, parent) in [
            ("a:b", "c"),
            ("a", "b:c"),
            ("", "c"),
            ("a", ""),
            ("a", "b c"),
        ] {
            let refused = agent(user, parent).unwrap_err();
            assert_eq!(refused.what, "agent session", "{user} {parent}");
        }
        let longest = KEY_BYTES_MAX - "mcpgw:agent_session:coder:a:".len();
        assert!(agent("a", &"p".repeat(longest)).is_ok());
        assert!(agent("a", &"p".repeat(longest + 1)).is_err());
    }

    #[test]
    fn no_two_code_sessions_share_a_key() {
        for (server, user, language) in [
            ("a:b", "c", "python"),
            ("a", "b:c", "python"),
            ("a", "b", "c:python"),
            ("a", "", "python"),
            ("a", "b", ""),
            ("a", "b c", "python"),
            ("a", "zo\u{eb}", "python"),
        ] {
            assert!(
                code(server, user, language).is_err(),
                "{server} {user} {language}"
            );
        }
        let longest = KEY_BYTES_MAX - "mcpgw:code_exec_session:a::python".len();
        assert!(code("a", &"u".repeat(longest), "python").is_ok());
        assert!(code("a", &"u".repeat(longest + 1), "python").is_err());
    }

    #[test]
    fn a_named_key_is_taken_where_it_is_of_a_family_under_the_prefix() {
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
            b"mcpgw:code_exec_session:a:b",
            b"mcpgw:code_exec_session:a:b:c:d",
            b"mcpgw:code_exec_session:a::c",
            b"mcpgw:code_exec_session:a:b:\xff",
            b"other:code_exec_session:a:b:c",
            b"mcpgw:agent_session:a:b",
            b"mcpgw:agent_session:a:b:c:d",
            b"other:agent_session:a:b:c",
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
