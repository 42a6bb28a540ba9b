//! Why a request has no identity, with the status and the label of each reason.

use std::fmt;

use http::StatusCode;
use strum::VariantNames as _;

use crate::certificate::CertificateError;
use crate::dpop::ProofError;
use crate::token::TokenError;

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
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum IdentityError {
    /// The peer is not trusted to name the sender.
    #[error("the peer is not a trusted proxy")]
    PeerNotTrusted,
    /// The proxy named no user.
    #[error("the request names no user")]
    UserMissing,
    /// A header occurs twice: one may be the proxy's and the other forged by the client.
    #[error("the {0} header is repeated")]
    #[strum(serialize = "header_repeated")]
    Repeated(IdentityHeader),
    /// A value is not UTF-8, too long, empty or contains control characters.
    #[error("the {0} header has no valid value")]
    #[strum(serialize = "header_invalid")]
    Invalid(IdentityHeader),
    /// More teams or roles than one request may carry.
    #[error("the {0} header has too many items")]
    #[strum(serialize = "header_too_many")]
    TooMany(IdentityHeader),
    /// The request has no token.
    #[error("the request has no bearer token")]
    TokenMissing,
    /// The request has several tokens: others may have used another one.
    #[error("the request has more than one credential")]
    SeveralCredentials,
    /// The token is in the query, which is logged.
    #[error("the query has a token, which belongs in the Authorization header")]
    TokenInQuery,
    /// The token is refused.
    #[error(transparent)]
    #[strum(transparent)]
    Token(#[from] TokenError),
    /// The proof of the token's key is refused.
    #[error(transparent)]
    #[strum(transparent)]
    Proof(#[from] ProofError),
    /// It cannot be seen whether the proof was used before.
    #[error("it cannot be seen at present whether the proof was used before")]
    ProofUnchecked,
    /// The request has no API key.
    #[error("the request has no API key")]
    ApiKeyMissing,
    /// The API key is refused.
    #[error(transparent)]
    #[strum(transparent)]
    ApiKey(#[from] ApiKeyError),
    /// The client certificate is refused.
    #[error(transparent)]
    #[strum(transparent)]
    Certificate(#[from] CertificateError),
    /// No caller can be authenticated, because the issuer's keys, or the API keys, could not be read yet.
    #[error("the keys that callers are known by cannot be read at present")]
    KeysUnavailable,
}

impl IdentityError {
    /// 403 if the peer is not trusted, 400 if a token was not sent as it must be, 503 if no token can be verified at
    /// present, 401 otherwise.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::PeerNotTrusted => StatusCode::FORBIDDEN,
            Self::SeveralCredentials | Self::TokenInQuery => StatusCode::BAD_REQUEST,
            Self::KeysUnavailable | Self::ProofUnchecked => StatusCode::SERVICE_UNAVAILABLE,
            Self::UserMissing
            | Self::Repeated(_)
            | Self::Invalid(_)
            | Self::TooMany(_)
            | Self::TokenMissing
            | Self::Token(_)
            | Self::Proof(_)
            | Self::ApiKeyMissing
            | Self::ApiKey(_)
            | Self::Certificate(_) => StatusCode::UNAUTHORIZED,
        }
    }

    /// The reason as a label of a metric.
    #[must_use]
    pub fn reason(self) -> &'static str {
        self.into()
    }

    /// All values of that label.
    pub(crate) fn reasons() -> impl Iterator<Item = &'static str> {
        // Each of these variants has the reasons of its own error in place of its name.
        let nested = [
            ("token", TokenError::VARIANTS),
            ("proof", ProofError::VARIANTS),
            ("api_key", ApiKeyError::VARIANTS),
            ("certificate", CertificateError::VARIANTS),
        ];
        let is_nested = move |name: &&str| nested.iter().any(|(nested, _)| nested == name);
        let own = Self::VARIANTS.iter().filter(move |name| !is_nested(name));
        let nested = nested.into_iter().flat_map(|(_, reasons)| reasons);
        own.chain(nested).copied()
    }
}

/// Why an API key is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames,
)]
#[strum(serialize_all = "snake_case", prefix = "api_key_")]
pub enum ApiKeyError {
    /// It is none of the file's.
    #[error("the API key is not known")]
    Unknown,
    /// It was revoked.
    #[error("the API key was revoked")]
    Revoked,
    /// It is not valid any more.
    #[error("the API key has expired")]
    Expired,
}
