//! The identity of a request with an access token (RFC 6750), which may be bound to a key (RFC 9449).
//!
//! Invariant: a request with two credentials, or with one in its address, is refused: others may have used another one,
//! and addresses are logged.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use mooring_secrets::access_token::AccessToken;
use mooring_settings::TokenSettings;
use sha2::{Digest as _, Sha256};

use crate::authentication::Authentication;
use crate::dpop::BoundToken;
use crate::error::IdentityError;
use crate::key_source::{KeySet, KeySource};
use crate::token::{self, TOKEN_BYTES_MAX, TokenDigest, TokenError, VerifiedToken};

/// The parameter of a query or a form that must not hold a token (RFC 6750, 2.3).
const QUERY_PARAMETER: &str = "access_token";

/// Verifies access tokens.
#[derive(Debug)]
pub(crate) struct TokenAuthenticator {
    pub(crate) settings: TokenSettings,
    pub(crate) keys: Arc<KeySource>,
    /// Whether identities have their tokens.
    pub(crate) keeps_tokens: bool,
}

impl TokenAuthenticator {
    /// Identifies the sender of this token, if it may be sent like this.
    pub(crate) async fn identify(
        &self,
        scheme: TokenScheme,
        token: &str,
    ) -> Result<Authentication, IdentityError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong.into());
        }
        let digest = Sha256::digest(token).into();
        let verified = self.verified(token, digest).await?;
        let identity = Arc::clone(&verified.identity);
        match (scheme, &verified.key) {
            (TokenScheme::Bearer, None) if !self.settings.dpop_required => {
                Ok(Authentication::Complete(identity))
            }
            (_, None) => Err(TokenError::NotBound.into()),
            (TokenScheme::Bearer, Some(_)) => Err(TokenError::KeyBound.into()),
            (TokenScheme::Dpop, Some(key)) => Ok(Authentication::NeedsProof(BoundToken {
                identity,
                key: key.clone(),
                token: digest,
                leeway: self.settings.leeway,
            })),
        }
    }

    /// Verifies a token that any holder may use.
    pub(crate) async fn verify_bearer(
        &self,
        token: &str,
    ) -> Result<Arc<VerifiedToken>, IdentityError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong.into());
        }
        let verified = self.verified(token, Sha256::digest(token).into()).await?;
        match verified.key {
            Some(_) => Err(TokenError::KeyBound.into()),
            None if self.settings.dpop_required => Err(TokenError::NotBound.into()),
            None => Ok(verified),
        }
    }

    async fn verified(
        &self,
        token: &str,
        digest: TokenDigest,
    ) -> Result<Arc<VerifiedToken>, IdentityError> {
        let now = token::now();
        let known = self.keys.current();
        if let Some(keys) = &known {
            if let Some(verified) = keys.verified(&digest, now) {
                return Ok(verified);
            }
            match self.verify(keys, token, digest, now) {
                Err(TokenError::UnknownKey) => {}
                verified => return Ok(verified?),
            }
        }
        self.keys.read_for_unknown().await;
        let keys = self.keys.current().ok_or(IdentityError::KeysUnavailable)?;
        // The same set would say the same again.
        if known.is_some_and(|known| Arc::ptr_eq(&known, &keys)) {
            return Err(TokenError::UnknownKey.into());
        }
        Ok(self.verify(&keys, token, digest, now)?)
    }

    fn verify(
        &self,
        keys: &KeySet,
        token: &str,
        digest: TokenDigest,
        now: u64,
    ) -> Result<Arc<VerifiedToken>, TokenError> {
        let mut verified = token::verify(token, &keys.keys, &self.settings, now)?;
        if self.keeps_tokens {
            let leeway = self.settings.leeway.as_secs();
            let expires_at = verified.accepted_until.saturating_sub(leeway);
            let kept = Arc::new(AccessToken::new(token, digest, expires_at));
            Arc::make_mut(&mut verified.identity).token = Some(kept);
        }
        let verified = Arc::new(verified);
        keys.remember(digest, &verified);
        Ok(verified)
    }
}

/// How a request sends its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenScheme {
    /// Any holder of the token may use it.
    Bearer,
    /// With a proof of the token's key.
    Dpop,
}

/// Whether the query has a token, whatever the headers have.
pub(crate) fn query_has_token(query: &str) -> bool {
    let mut parameters = url::form_urlencoded::parse(query.as_bytes());
    parameters.any(|(name, _)| name == QUERY_PARAMETER)
}

/// The token of a request.
pub(crate) fn token_of(headers: &HeaderMap) -> Result<(TokenScheme, &str), IdentityError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(IdentityError::TokenMissing)?;
    if values.next().is_some() {
        return Err(IdentityError::SeveralCredentials);
    }
    let text = value.to_str().map_err(|_| TokenError::Malformed)?;
    // Another scheme counts as no credential (RFC 6750, 3.1).
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            Ok((TokenScheme::Bearer, token.trim()))
        }
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("dpop") => {
            Ok((TokenScheme::Dpop, token.trim()))
        }
        _ => Err(IdentityError::TokenMissing),
    }
}
