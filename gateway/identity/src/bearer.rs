//! The identity of a request with an access token (RFC 6750).
//!
//! Invariant: a request with two credentials, or with one in its address, is refused: others may have used another one,
//! and addresses are logged.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use mooring_settings::TokenSettings;
use sha2::{Digest as _, Sha256};

use crate::key_source::{KeySet, KeySource, TokenDigest};
use crate::token::{self, TOKEN_BYTES_MAX, TokenError};
use crate::{Identity, IdentityError};

/// The parameter of a query or a form that must not hold a token (RFC 6750, 2.3).
const QUERY_PARAMETER: &str = "access_token";

/// Verifies access tokens.
#[derive(Debug)]
pub(crate) struct TokenAuthenticator {
    pub(crate) settings: TokenSettings,
    pub(crate) keys: Arc<KeySource>,
}

impl TokenAuthenticator {
    pub(crate) async fn identify(&self, token: &str) -> Result<Arc<Identity>, IdentityError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong.into());
        }
        let digest = Sha256::digest(token).into();
        let now = now();
        let known = self.keys.current();
        if let Some(keys) = &known {
            if let Some(identity) = keys.verified(&digest, now) {
                return Ok(identity);
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
    ) -> Result<Arc<Identity>, TokenError> {
        let verified = token::verify(token, &keys.keys, &self.settings, now)?;
        let identity = Arc::new(verified.identity);
        keys.remember(digest, &identity, verified.accepted_until);
        Ok(identity)
    }
}

/// The token of a request.
pub(crate) fn token_of<'a>(
    headers: &'a HeaderMap,
    query: Option<&str>,
) -> Result<&'a str, IdentityError> {
    let mut parameters = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    if parameters.any(|(name, _)| name == QUERY_PARAMETER) {
        return Err(IdentityError::TokenInQuery);
    }
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(IdentityError::TokenMissing)?;
    if values.next().is_some() {
        return Err(IdentityError::SeveralCredentials);
    }
    let text = value.to_str().map_err(|_| TokenError::Malformed)?;
    // Another scheme is as good as none (RFC 6750, 3.1).
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(IdentityError::TokenMissing),
    }
}

/// The time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
