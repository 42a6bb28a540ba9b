//! Who a request is from. A pure function of the settings, the peer's address and the request's headers:
//! either a whole, valid identity comes out or a typed refusal, and no header value is ever in a message.

mod trusted_header;

use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, StatusCode};

use mooring_settings::AuthSettings;

/// The principal of everybody where authentication is off.
pub const LOCAL_PRINCIPAL: &str = "local";

/// Who a request is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who owns the sessions made by this request: 1 to 320 bytes, no control characters, never `*`.
    pub principal: String,
    /// The principal's teams, each once, in the order given.
    pub teams: Vec<String>,
    /// The principal's roles, each once, in the order given.
    pub roles: Vec<String>,
}

impl Identity {
    /// Everybody on this machine, where authentication is off.
    pub fn local() -> Self {
        Self {
            principal: LOCAL_PRINCIPAL.to_owned(),
            teams: Vec::new(),
            roles: Vec::new(),
        }
    }
}

/// Which of the identity headers a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityHeader {
    /// Names the principal.
    User,
    /// Lists the teams.
    Teams,
    /// Lists the roles.
    Roles,
}

impl fmt::Display for IdentityHeader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::User => "user",
            Self::Teams => "teams",
            Self::Roles => "roles",
        })
    }
}

/// Why nobody can be named as the sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer may not say who a request is from.
    #[error("the peer is not a trusted proxy")]
    PeerNotTrusted,
    /// The proxy named no user.
    #[error("the request names no user")]
    UserMissing,
    /// A header stands there twice: perhaps the proxy's beside a client's forged one.
    #[error("the {0} header is repeated")]
    Repeated(IdentityHeader),
    /// A value is no UTF-8, too long, empty or has control characters.
    #[error("the {0} header has no valid value")]
    Invalid(IdentityHeader),
    /// More teams or roles than one request may carry.
    #[error("the {0} header has too many items")]
    TooMany(IdentityHeader),
}

impl IdentityError {
    /// 403 where the peer has no say, 401 where it named nobody.
    pub fn status(self) -> StatusCode {
        match self {
            Self::PeerNotTrusted => StatusCode::FORBIDDEN,
            Self::UserMissing | Self::Repeated(_) | Self::Invalid(_) | Self::TooMany(_) => {
                StatusCode::UNAUTHORIZED
            }
        }
    }
}

/// Who a request is from that came over a connection from `peer`.
///
/// # Errors
/// See [`IdentityError`]; the caller answers with its status and changes nothing.
pub fn identify(
    settings: &AuthSettings,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Result<Identity, IdentityError> {
    match settings {
        AuthSettings::None => Ok(Identity::local()),
        AuthSettings::TrustedHeader(settings) => trusted_header::identify(settings, peer, headers),
    }
}
