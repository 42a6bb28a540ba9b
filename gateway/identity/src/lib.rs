//! Identifies the caller of a request: a complete, valid identity or a typed refusal.
//!
//! Invariant: no value of a header appears in a message.

mod api_key;
mod bearer;
mod certificate;
mod dpop;
mod fetch;
mod key;
mod key_source;
mod metrics;
#[cfg(test)]
mod tests;
mod token;
mod trusted_header;
mod value;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use ipnet::IpNet;

use mooring_secrets::access_token::AccessToken;
use mooring_secrets::digest;
use mooring_session::names::Principal;
use mooring_settings::{AuthSettings, CertificateName, TokenSettings, TrustedHeaderSettings};
use mooring_upstream::ClientError;
use strum::VariantNames as _;
use url::Url;

use self::api_key::ApiKeyAuthenticator;
pub use self::api_key::{ApiKeyError, ApiKeyFile, ApiKeyFileError, NewApiKey, StoredApiKey};
use self::bearer::TokenAuthenticator;
pub use self::bearer::now;
pub use self::certificate::{CertificateError, Peer};
pub use self::dpop::{BoundToken, ProofError, UsedProof};
pub use self::fetch::FetchError;
use self::fetch::Fetcher;
pub use self::key::KeySetError;
use self::key_source::KeySource;
pub use self::key_source::{KeysError, KeysState};
pub use self::metrics::describe_metrics;
pub use self::token::TokenError;

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
    /// The caller's token, where a server gets one in exchange for it.
    pub token: Option<Arc<AccessToken>>,
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
            token: None,
        }
    }

    /// A digest of the teams, roles and scopes, in whatever order: with the same one, a principal has the same rights.
    #[must_use]
    pub fn rights_digest(&self) -> String {
        let lists = [&self.teams[..], &self.roles, &self.scopes].map(|names| {
            let mut names: Vec<&String> = names.iter().collect();
            names.sort_unstable();
            names
        });
        digest::hex(format!("{lists:?}").as_bytes())
    }
}

/// How far the headers of a request authenticate its sender.
#[derive(Debug)]
pub enum Authentication {
    /// Who it is from.
    Complete(Arc<Identity>),
    /// The same, if the request proves that it has the token's key.
    NeedsProof(BoundToken),
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
    fn reasons() -> impl Iterator<Item = &'static str> {
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

/// How requests are authenticated.
#[derive(Debug)]
pub struct Authenticator {
    mode: Mode,
    trusted_peers: Vec<IpNet>,
}

#[derive(Debug)]
enum Mode {
    /// Everybody is this one caller.
    Open(Arc<Identity>),
    TrustedHeader(TrustedHeaderSettings),
    Token(TokenAuthenticator),
    ApiKey(ApiKeyAuthenticator),
    /// The user is this name of the client's certificate.
    Certificate(CertificateName),
}

impl Authenticator {
    /// Authenticates as these settings say.
    ///
    /// # Errors
    /// Keys are fetched over TLS, and there are no root certificates.
    pub fn new(settings: AuthSettings) -> Result<Self, ClientError> {
        let (mode, trusted_peers) = match settings {
            AuthSettings::None => (
                Mode::Open(Arc::new(Identity::of(Principal::local()))),
                Vec::new(),
            ),
            AuthSettings::TrustedHeader(settings) => {
                let trusted_peers = settings.trusted_peers.clone();
                (Mode::TrustedHeader(settings), trusted_peers)
            }
            AuthSettings::Jwt {
                tokens,
                trusted_peers,
            } => {
                let keys = Arc::new(KeySource::new(&tokens, fetcher(&tokens)?));
                (
                    Mode::Token(TokenAuthenticator {
                        settings: tokens,
                        keys,
                        keeps_tokens: false,
                    }),
                    trusted_peers,
                )
            }
            AuthSettings::ApiKey {
                keys_file,
                trusted_peers,
            } => (
                Mode::ApiKey(ApiKeyAuthenticator::new(keys_file)),
                trusted_peers,
            ),
            AuthSettings::Mtls {
                user,
                trusted_peers,
            } => (Mode::Certificate(user), trusted_peers),
        };
        Ok(Self {
            mode,
            trusted_peers,
        })
    }

    /// Identities have the tokens that they follow from, if these are exchanged.
    #[must_use]
    pub fn keeping_tokens(mut self, are_exchanged: bool) -> Self {
        if let Mode::Token(tokens) = &mut self.mode {
            tokens.keeps_tokens = are_exchanged;
        }
        self
    }

    /// The peer at this address, with the certificate, in DER, that the listener has verified.
    #[must_use]
    pub fn peer(&self, address: SocketAddr, certificate: Option<&[u8]>) -> Peer {
        let peer = Peer::at(address);
        match (&self.mode, certificate) {
            (Mode::Certificate(user), Some(certificate)) => {
                peer.with_certificate(certificate, *user)
            }
            _ => peer,
        }
    }

    /// The identity of a request over a connection from `peer`, from its headers or the peer's certificate; a token in its
    /// query is refused. At most, it waits for the issuer's keys.
    ///
    /// # Errors
    /// See [`IdentityError`]; the caller answers with its status and does nothing else.
    pub async fn identify(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<Authentication, IdentityError> {
        if self.takes_bearers() && query.is_some_and(bearer::query_has_token) {
            return Err(IdentityError::TokenInQuery);
        }
        let caller = match &self.mode {
            Mode::Open(identity) => Arc::clone(identity),
            Mode::TrustedHeader(settings) => Arc::new(trusted_header::identify(
                settings,
                peer.address.ip(),
                headers,
            )?),
            Mode::Token(tokens) => {
                let (scheme, token) = bearer::token_of(headers)?;
                return tokens.identify(scheme, token).await;
            }
            Mode::ApiKey(keys) => keys.identify(api_key::key_of(headers)?, bearer::now())?,
            Mode::Certificate(_) => peer.certified(bearer::now())?,
        };
        Ok(Authentication::Complete(caller))
    }

    /// Counts a refusal.
    pub fn note_refused(&self, peer: IpAddr, error: IdentityError) {
        metrics::refused(error);
        // Unauthenticated senders must not be able to fill the log; the metric counts them.
        tracing::debug!(%peer, reason = error.reason(), "request refused: not authenticated");
    }

    /// Reads the keys that callers are known by: the issuer's, or the API keys. Returns also if that fails.
    pub async fn read_keys(&self) {
        match &self.mode {
            Mode::Token(tokens) => tokens.keys.read_now().await,
            Mode::ApiKey(keys) => keys.read_if_changed().await,
            Mode::Open(_) | Mode::TrustedHeader(_) | Mode::Certificate(_) => {}
        }
    }

    /// Keeps these keys current, until it is dropped.
    pub async fn keep_keys(&self) {
        match &self.mode {
            Mode::Token(tokens) => tokens.keys.keep_current().await,
            Mode::ApiKey(keys) => keys.keep_current().await,
            Mode::Open(_) | Mode::TrustedHeader(_) | Mode::Certificate(_) => {}
        }
    }

    /// The state of these keys, and their name for operators; none if there are none.
    #[must_use]
    pub fn keys_state(&self) -> Option<(&'static str, KeysState)> {
        match &self.mode {
            Mode::Token(tokens) => Some(("token_keys", tokens.keys.state())),
            Mode::ApiKey(keys) => Some(("api_keys", keys.state())),
            Mode::Open(_) | Mode::TrustedHeader(_) | Mode::Certificate(_) => None,
        }
    }

    /// Whether callers are authenticated; otherwise all are the same one.
    #[must_use]
    pub const fn authenticates(&self) -> bool {
        !matches!(self.mode, Mode::Open(_))
    }

    /// Whether callers send a credential in the Authorization header.
    #[must_use]
    pub const fn takes_bearers(&self) -> bool {
        matches!(self.mode, Mode::Token(_) | Mode::ApiKey(_))
    }

    /// The issuer of the tokens that are accepted, if any are.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        match &self.mode {
            Mode::Token(tokens) => Some(&tokens.settings.issuer),
            Mode::Open(_) | Mode::TrustedHeader(_) | Mode::ApiKey(_) | Mode::Certificate(_) => None,
        }
    }

    /// Whether every token has to be bound to a key; none where no tokens are accepted.
    #[must_use]
    pub const fn requires_proofs(&self) -> Option<bool> {
        match &self.mode {
            Mode::Token(tokens) => Some(tokens.settings.dpop_required),
            Mode::Open(_) | Mode::TrustedHeader(_) | Mode::ApiKey(_) | Mode::Certificate(_) => None,
        }
    }

    /// The proxies whose headers are trusted, or the load balancers.
    #[must_use]
    pub fn trusted_peers(&self) -> &[IpNet] {
        &self.trusted_peers
    }

    /// Whether the peer is one of them. An IPv4 address is given as such.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        (self.trusted_peers.iter()).any(|network| network.contains(&peer))
    }
}

/// The signature algorithms that proofs of a token's key may have.
pub fn proof_algorithms() -> impl Iterator<Item = &'static str> {
    dpop::algorithms()
}

/// What fetches the issuer's keys.
fn fetcher(tokens: &TokenSettings) -> Result<Fetcher, ClientError> {
    let (file, url) = (&tokens.jwks_file, &tokens.jwks_url);
    let source = url.as_ref().map_or(&*tokens.issuer, Url::as_str);
    match (file, url, source.starts_with("https:")) {
        (Some(_), ..) => Fetcher::new(false),
        (None, _, true) => Fetcher::new(true),
        (None, Some(_), false) => Fetcher::new(false),
        // The metadata of an issuer at a loopback address may name an address with TLS.
        (None, None, false) => Fetcher::new(true).or_else(|_| Fetcher::new(false)),
    }
}
