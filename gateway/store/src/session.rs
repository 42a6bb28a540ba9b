//! A session as one request names it.
//!
//! Invariant: the id is a secret; only its digest is ever logged.

use std::fmt;
use std::sync::Arc;

use mooring_secrets::access_token::AccessToken;
use mooring_secrets::digest;
use mooring_session::names::{NameError, Principal, SessionId};

use super::key::SessionKey;
use mooring_usage::UserUsage;

/// A session's id, owner and key.
#[derive(Clone)]
pub struct Session {
    /// The id the client knows. A secret.
    pub id: SessionId,
    /// The caller of the request.
    pub principal: Principal,
    /// The caller's teams; empty if the gateway acts by itself.
    pub teams: Arc<[String]>,
    /// The caller's token, if a server gets one in exchange for it.
    pub token: Option<Arc<AccessToken>>,
    /// The usage of the caller's user; none if the gateway acts by itself.
    pub usage: Option<Arc<UserUsage>>,
    /// The key of its record.
    pub key: SessionKey,
    /// Identifies the session in logs and to upstream servers, instead of the id.
    pub digest: Arc<str>,
}

/// Digits at the end of an id that tell for which server it was made.
const SERVER_TAG_DIGITS: usize = 8;

impl Session {
    /// The session under this key.
    #[must_use]
    pub fn new(key: SessionKey, id: SessionId, principal: Principal) -> Self {
        Self {
            digest: key.digest().into(),
            key,
            id,
            principal,
            teams: Arc::default(),
            token: None,
            usage: None,
        }
    }

    /// The same session in a request of a caller in these teams, with this token, charged to this user.
    #[must_use]
    pub fn of_caller(
        self,
        teams: &Arc<[String]>,
        token: Option<&Arc<AccessToken>>,
        usage: &Arc<UserUsage>,
    ) -> Self {
        Self {
            teams: Arc::clone(teams),
            token: token.cloned(),
            usage: Some(Arc::clone(usage)),
            ..self
        }
    }

    /// The MCP session that a request names.
    #[must_use]
    pub fn named(key_prefix: &str, id: SessionId, principal: Principal) -> Self {
        Self::new(SessionKey::mcp(key_prefix, &id), id, principal)
    }

    /// An MCP session of this server with a new id: 128 bits from a cryptographically secure generator, and the server's
    /// tag, as hex.
    ///
    /// # Errors
    /// Never in practice: forty hex digits are a valid id.
    pub fn mint(key_prefix: &str, principal: Principal, server: &str) -> Result<Self, NameError> {
        let (random, tag) = (rand::random::<u128>(), server_tag(server));
        let id = SessionId::parse(format!("{random:032x}{tag:08x}").as_bytes())?;
        Ok(Self::named(key_prefix, id, principal))
    }

    /// Whether an id was made for sessions of this server. The tag is no secret, and protects a client from its own
    /// mistake: who makes up an id has no session.
    #[must_use]
    pub fn is_id_of(id: &SessionId, server: &str) -> bool {
        let id = id.as_str();
        let begin = id.len().saturating_sub(SERVER_TAG_DIGITS);
        id.get(begin..)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .is_some_and(|tag| tag == server_tag(server))
    }

    /// The pattern of the ids that were made for sessions of this server, for a query.
    #[must_use]
    pub fn id_pattern_of(server: &str) -> String {
        format!("*{:08x}", server_tag(server))
    }

    /// The MCP session of this name: the same one for the same principal, server, name and initialize params.
    ///
    /// # Errors
    /// Never in practice: the id is letters, digits and dashes.
    pub fn of_name(
        key_prefix: &str,
        principal: &Principal,
        server: &str,
        name: &str,
        params: &str,
    ) -> Result<Self, NameError> {
        // Only the last of them may have an end of line in it.
        let material = format!("{}\n{server}\n{name}\n{params}", principal.as_str());
        Self::derived(key_prefix, principal, server, "stdio", &material)
    }

    /// The MCP session that this principal's requests without a session share at a server, where they bring the same key.
    ///
    /// # Errors
    /// Never in practice: the id is letters, digits and dashes.
    pub fn of_continuity_key(
        key_prefix: &str,
        principal: &Principal,
        server: &str,
        key: &str,
    ) -> Result<Self, NameError> {
        let material = format!("{}\n{server}\n{key}", principal.as_str());
        Self::derived(key_prefix, principal, server, "continuity", &material)
    }

    /// The session whose id is made from this material.
    fn derived(
        key_prefix: &str,
        principal: &Principal,
        server: &str,
        kind: &str,
        material: &str,
    ) -> Result<Self, NameError> {
        let (name, tag) = (digest::hex(material.as_bytes()), server_tag(server));
        let id = format!("{kind}-{name}{tag:08x}");
        let id = SessionId::parse(id.as_bytes())?;
        Ok(Self::named(key_prefix, id, principal.clone()))
    }
}

/// The same for a server at every gateway, whatever its version: FNV-1a.
fn server_tag(server: &str) -> u32 {
    server.bytes().fold(0x811c_9dc5, |tag: u32, byte| {
        (tag ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Session({})", self.digest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_id_is_of_the_server_that_it_was_made_for() {
        let user = || Principal::parse(b"ada").unwrap();
        let minted = Session::mint("mcpgw:", user(), "a").unwrap();
        let named = Session::of_name("mcpgw:", &user(), "a", "work", "{}").unwrap();
        let keyed = Session::of_continuity_key("mcpgw:", &user(), "a", "work").unwrap();
        let other = Principal::parse(b"bob").unwrap();
        let others = Session::of_continuity_key("mcpgw:", &other, "a", "work").unwrap();
        assert_ne!(keyed.id, others.id);
        for id in [minted.id, named.id, keyed.id] {
            assert!(Session::is_id_of(&id, "a"));
            assert!(!Session::is_id_of(&id, "b"));
        }
        let short = SessionId::parse(b"x").unwrap();
        assert!(!Session::is_id_of(&short, "a"));
        // Gateways of all versions have to agree.
        assert_eq!(server_tag("a"), 0xe40c_292c);
    }
}
