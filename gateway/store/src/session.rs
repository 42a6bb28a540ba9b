//! A session as one request names it.
//!
//! Invariant: the id is a secret; only its digest is ever logged.

use std::fmt;
use std::sync::Arc;

use mooring_secrets::access_token::AccessToken;
use mooring_secrets::digest;
use mooring_session::names::{NameError, Principal, SessionId};

use super::key::SessionKey;

/// A session's id, owner and key.
#[derive(Clone)]
pub struct Session {
    /// The id the client knows. A secret.
    pub id: SessionId,
    /// Who the request comes from.
    pub principal: Principal,
    /// The teams of who the request comes from; empty where the gateway acts by itself.
    pub teams: Arc<[String]>,
    /// The token of who the request comes from, where a server gets one in exchange for it.
    pub token: Option<Arc<AccessToken>>,
    /// The key of its record.
    pub key: SessionKey,
    /// Identifies the session in logs and to upstream servers, instead of the id.
    pub digest: Box<str>,
}

impl Session {
    /// The session under this key.
    #[must_use]
    pub fn new(key: SessionKey, id: SessionId, principal: Principal) -> Self {
        Self {
            digest: key.digest(),
            key,
            id,
            principal,
            teams: Arc::default(),
            token: None,
        }
    }

    /// The same session in a request of somebody in these teams, with this token.
    #[must_use]
    pub fn of_caller(self, teams: &Arc<[String]>, token: Option<&Arc<AccessToken>>) -> Self {
        Self {
            teams: Arc::clone(teams),
            token: token.cloned(),
            ..self
        }
    }

    /// The MCP session that a request names.
    #[must_use]
    pub fn named(key_prefix: &str, id: SessionId, principal: Principal) -> Self {
        Self::new(SessionKey::mcp(key_prefix, &id), id, principal)
    }

    /// An MCP session with a new id: 128 bits from a cryptographically secure generator, as hex.
    ///
    /// # Errors
    /// Never in practice: thirty-two hex digits are a valid id.
    pub fn mint(key_prefix: &str, principal: Principal) -> Result<Self, NameError> {
        let id = SessionId::parse(format!("{:032x}", rand::random::<u128>()).as_bytes())?;
        Ok(Self::named(key_prefix, id, principal))
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
        let id = format!("stdio-{}", digest::hex(material.as_bytes()));
        let id = SessionId::parse(id.as_bytes())?;
        Ok(Self::named(key_prefix, id, principal.clone()))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Session({})", self.digest)
    }
}
