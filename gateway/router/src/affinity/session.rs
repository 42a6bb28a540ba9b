//! A client's session, as one request names it.

use std::fmt;

use mooring_session::names::{NameError, Principal, SessionId};

use mooring_store::SessionKey;

/// Whose session, and under which key its record stands.
#[derive(Clone)]
pub struct Session {
    /// The id the client knows. A secret: only its digest is ever logged.
    pub id: SessionId,
    /// Who the request comes from.
    pub principal: Principal,
    /// Where the record stands.
    pub key: SessionKey,
    /// What stands for the id in logs and upstream.
    pub digest: Box<str>,
}

impl Session {
    /// The session that a request names.
    #[must_use]
    pub fn named(key_prefix: &str, id: SessionId, principal: Principal) -> Self {
        let key = SessionKey::mcp(key_prefix, &id);
        Self {
            digest: key.digest(),
            key,
            id,
            principal,
        }
    }

    /// A session with a new id: 128 bits from a cryptographically secure generator, as hex.
    ///
    /// # Errors
    /// Never in practice: thirty-two hex digits are a valid id.
    pub fn mint(key_prefix: &str, principal: Principal) -> Result<Self, NameError> {
        let id = SessionId::parse(format!("{:032x}", rand::random::<u128>()).as_bytes())?;
        Ok(Self::named(key_prefix, id, principal))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Session({})", self.digest)
    }
}
