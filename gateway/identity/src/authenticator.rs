//! Authenticates requests in the way that the settings choose.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;
use mooring_session::names::Principal;
use mooring_settings::{AuthSettings, CertificateName, TokenSettings, TrustedHeaderSettings};
use mooring_upstream::ClientError;
use url::Url;

use crate::api_key::{self, ApiKeyAuthenticator};
use crate::authentication::Authentication;
use crate::bearer::{self, TokenAuthenticator};
use crate::certificate::Peer;
use crate::credential::VerifiedCredential;
use crate::dpop;
use crate::error::IdentityError;
use crate::fetch::Fetcher;
use crate::identity::Identity;
use crate::key_source::{KeySource, KeysState};
use crate::token::now;
use crate::{metrics, trusted_header};

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
            Mode::ApiKey(keys) => keys.identify(api_key::key_of(headers)?, now())?,
            Mode::Certificate(_) => peer.certified(now())?,
        };
        Ok(Authentication::Complete(caller))
    }

    /// Verifies a credential by itself: an access token that any holder may use, or an API key.
    ///
    /// # Errors
    /// See [`IdentityError`]; also where callers have no such credentials.
    pub async fn verify_credential(&self, text: &str) -> Result<VerifiedCredential, IdentityError> {
        match &self.mode {
            Mode::Token(tokens) => {
                let verified = tokens.verify_bearer(text).await?;
                Ok(VerifiedCredential {
                    identity: Arc::clone(&verified.identity),
                    accepted_until: verified.accepted_until,
                    api_key: None,
                })
            }
            Mode::ApiKey(keys) => keys.verify(text, now()),
            Mode::Open(_) | Mode::TrustedHeader(_) | Mode::Certificate(_) => {
                Err(IdentityError::TokenMissing)
            }
        }
    }

    /// The owner of the API key of this id, as long as it is accepted.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn api_key_owner(&self, id: &str) -> Result<Arc<Identity>, IdentityError> {
        match &self.mode {
            Mode::ApiKey(keys) => keys.owner(id, now()),
            _ => Err(IdentityError::ApiKeyMissing),
        }
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
pub(crate) fn fetcher(tokens: &TokenSettings) -> Result<Fetcher, ClientError> {
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
