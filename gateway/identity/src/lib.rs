//! Who a request is from: a complete, valid identity or a typed refusal.
//!
//! Invariant: no value of a header appears in a message.

mod trusted_header;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use ipnet::IpNet;

use mooring_session::names::Principal;
use mooring_settings::{AuthSettings, TrustedHeaderSettings};

/// The identity of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Owner of the sessions of this request.
    pub principal: Principal,
    /// The principal's teams, without duplicates, in the order given.
    pub teams: Arc<[String]>,
    /// The principal's roles, without duplicates, in the order given.
    pub roles: Vec<String>,
    /// The scopes of the caller's token, without duplicates; empty where no token is checked.
    pub scopes: Vec<String>,
}

impl Identity {
    /// The identity of a principal without team, role or scope.
    #[must_use]
    pub fn of(principal: Principal) -> Self {
        Self {
            principal,
            teams: Arc::default(),
            roles: Vec::new(),
            scopes: Vec::new(),
        }
    }
}

/// The identity header that a refusal is about.
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

/// Why a request has no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer is not trusted to name the sender.
    #[error("the peer is not a trusted proxy")]
    PeerNotTrusted,
    /// The proxy named no user.
    #[error("the request names no user")]
    UserMissing,
    /// A header occurs twice: one may be the proxy's and the other forged by the client.
    #[error("the {0} header is repeated")]
    Repeated(IdentityHeader),
    /// A value is not UTF-8, too long, empty or contains control characters.
    #[error("the {0} header has no valid value")]
    Invalid(IdentityHeader),
    /// More teams or roles than one request may carry.
    #[error("the {0} header has too many items")]
    TooMany(IdentityHeader),
}

impl IdentityError {
    /// 403 if the peer is not trusted, 401 otherwise.
    pub fn status(self) -> StatusCode {
        match self {
            Self::PeerNotTrusted => StatusCode::FORBIDDEN,
            Self::UserMissing | Self::Repeated(_) | Self::Invalid(_) | Self::TooMany(_) => {
                StatusCode::UNAUTHORIZED
            }
        }
    }
}

/// How requests are authenticated.
#[derive(Debug)]
pub struct Authenticator(Mode);

#[derive(Debug)]
enum Mode {
    /// Everybody is this one caller.
    Open(Arc<Identity>),
    TrustedHeader(TrustedHeaderSettings),
}

impl Authenticator {
    /// Authenticates as these settings say.
    #[must_use]
    pub fn new(settings: AuthSettings) -> Self {
        Self(match settings {
            AuthSettings::None => Mode::Open(Arc::new(Identity::of(Principal::local()))),
            AuthSettings::TrustedHeader(settings) => Mode::TrustedHeader(settings),
        })
    }

    /// The identity of a request over a connection from `peer`.
    ///
    /// # Errors
    /// See [`IdentityError`]; the caller answers with its status and does nothing else.
    pub async fn identify(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Arc<Identity>, IdentityError> {
        match &self.0 {
            Mode::Open(identity) => Ok(Arc::clone(identity)),
            Mode::TrustedHeader(settings) => {
                trusted_header::identify(settings, peer, headers).map(Arc::new)
            }
        }
    }

    /// The proxies whose headers are believed.
    #[must_use]
    pub fn trusted_peers(&self) -> &[IpNet] {
        match &self.0 {
            Mode::Open(_) => &[],
            Mode::TrustedHeader(settings) => &settings.trusted_peers,
        }
    }

    /// Whether the peer is one of them. An IPv4 address is given as such.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        (self.trusted_peers().iter()).any(|network| network.contains(&peer))
    }
}
