//! Tokens for callers, in exchange for their own (RFC 8693).
//!
//! Invariants: a token is used for the one token that it was exchanged for, and no longer than that is valid; one request
//! for it is under way at a time, and the others wait for its outcome; none is stored anywhere but here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use mooring_secrets::access_token::AccessToken;
use mooring_usage::BoundedCache;
use tokio::time::Instant;

use super::endpoint::{FetchError, RENEW_PAUSE, TokenEndpoint, TokenRequest};
use crate::metrics::{TokenExchange, token_exchanged};
use crate::{HttpClient, with_causes};

/// Most callers' tokens of a server that are known.
pub(super) const TOKENS_MAX: usize = 10_000;
/// How long, at least, the outcome of an exchange answers all requests for the same token.
pub(super) const SHARED_FOR: Duration = Duration::from_secs(2);

/// The SHA-256 of a caller's token.
pub(super) type TokenDigest = [u8; 32];

/// Why there is no token for a caller. The request was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenExchangeError {
    /// The caller was not authenticated by a token, or is known by name only.
    #[error(
        "the server is called with a token for its caller, and the caller was not authenticated by one"
    )]
    NoToken,
    /// The caller's token has expired since the request was admitted.
    #[error("the access token of the caller has expired")]
    Expired,
    /// The authorization server does not exchange this caller's token for one for the server.
    #[error(
        "the authorization server of the server refused to exchange the token of the caller: {0}"
    )]
    Refused(Box<str>),
    /// The authorization server refuses the gateway.
    #[error("the authorization server of the server refused the gateway: {0}; check servers.oauth")]
    GatewayRefused(Box<str>),
    /// The authorization server did not answer, or not with a token.
    #[error(
        "the authorization server of the server gave no answer, so that there is no token for the caller"
    )]
    Unavailable,
}

/// Exchanged tokens, by the tokens that they were exchanged for.
pub(super) struct ExchangedTokens(Mutex<BoundedCache<TokenDigest, Arc<Slot>>>);

impl Default for ExchangedTokens {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(TOKENS_MAX)))
    }
}

/// The token for one caller. Who exchanges it holds the lock.
pub(super) type Slot = tokio::sync::Mutex<SlotState>;

#[derive(Default)]
pub(super) struct SlotState {
    token: Option<ValidToken>,
    failed: Option<(Instant, TokenExchangeError)>,
    /// When it was last fetched because the server refused the one before.
    renewed_at: Option<Instant>,
}

struct ValidToken {
    authorization: HeaderValue,
    /// When another one is fetched.
    due_at: Instant,
    expires_at: Instant,
    /// That of the gateway's secret.
    generation: u64,
}

impl ExchangedTokens {
    /// The value of the Authorization header for requests of this token's caller.
    ///
    /// # Errors
    /// The token has expired, or was not exchanged.
    pub(super) async fn get(
        &self,
        endpoint: &TokenEndpoint,
        client: &HttpClient,
        subject: &AccessToken,
    ) -> Result<HeaderValue, TokenExchangeError> {
        let slot = self.slot(subject.digest());
        let mut state = slot.lock().await;
        state.current(endpoint, client, subject).await
    }

    /// Another token than this one, which the server has refused; none if there is no other one.
    pub(super) async fn renew(
        &self,
        endpoint: &TokenEndpoint,
        client: &HttpClient,
        subject: &AccessToken,
        refused: &HeaderValue,
    ) -> Option<HeaderValue> {
        let slot = self.slot(subject.digest());
        let mut state = slot.lock().await;
        let is_refused = |token: &ValidToken| token.authorization == *refused;
        if state.token.as_ref().is_none_or(is_refused) {
            if state
                .renewed_at
                .is_some_and(|at| at.elapsed() < RENEW_PAUSE)
            {
                return None;
            }
            tracing::info!(server = %endpoint.server(), "the server refused a caller's token; another one is fetched");
            state.renewed_at = Some(Instant::now());
            state.token = None;
        }
        state.current(endpoint, client, subject).await.ok()
    }

    pub(super) fn slot(&self, digest: &TokenDigest) -> Arc<Slot> {
        // The cache is consistent after every statement, so a poisoned lock is usable.
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(digest) {
            return Arc::clone(slot);
        }
        let slot = Arc::<Slot>::default();
        slots.insert(*digest, Arc::clone(&slot));
        slot
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl SlotState {
    /// The token to send, exchanged again if necessary.
    async fn current(
        &mut self,
        endpoint: &TokenEndpoint,
        client: &HttpClient,
        subject: &AccessToken,
    ) -> Result<HeaderValue, TokenExchangeError> {
        let remaining = subject.remaining().ok_or(TokenExchangeError::Expired)?;
        let (now, generation) = (Instant::now(), endpoint.generation());
        self.token = self
            .token
            .take()
            .filter(|token| now < token.expires_at && token.generation == generation);
        if let Some(token) = self.token.as_ref().filter(|token| now < token.due_at) {
            return Ok(token.authorization.clone());
        }
        if let Some((at, error)) = &self.failed
            && at.elapsed() < SHARED_FOR
        {
            return Err(error.clone());
        }
        let fetched = endpoint
            .fetch(client, TokenRequest::Exchange(subject))
            .await;
        match fetched {
            Ok(fetched) => {
                token_exchanged(TokenExchange::Ok);
                let now = Instant::now();
                // Those who wait get this one, even if it is hardly valid: they must not ask one after the other.
                let token = ValidToken {
                    authorization: fetched.authorization.clone(),
                    due_at: now + (fetched.valid * 4 / 5).max(SHARED_FOR).min(remaining),
                    expires_at: now + fetched.valid.max(SHARED_FOR).min(remaining),
                    generation: fetched.generation,
                };
                self.token = Some(token);
                self.failed = None;
                Ok(fetched.authorization)
            }
            Err(error) => self.fail(endpoint, &error),
        }
    }

    /// The error of a failed exchange. A token that is still valid is sent on if the authorization server only gave no
    /// answer.
    fn fail(
        &mut self,
        endpoint: &TokenEndpoint,
        cause: &FetchError,
    ) -> Result<HeaderValue, TokenExchangeError> {
        tracing::warn!(server = %endpoint.server(), cause = %with_causes(cause), "exchanging a caller's token failed");
        let error = TokenExchangeError::from(cause);
        let is_unavailable = error == TokenExchangeError::Unavailable;
        token_exchanged(match is_unavailable {
            true => TokenExchange::Failed,
            false => TokenExchange::Refused,
        });
        let now = Instant::now();
        if let Some(token) = self.token.as_mut().filter(|_| is_unavailable) {
            // Each attempt delays requests, so a long outage is not met with many.
            let remaining = token.expires_at.saturating_duration_since(now);
            token.due_at = now + (remaining / 2).max(SHARED_FOR);
            return Ok(token.authorization.clone());
        }
        self.token = None;
        self.failed = Some((now, error.clone()));
        Err(error)
    }
}

impl From<&FetchError> for TokenExchangeError {
    fn from(error: &FetchError) -> Self {
        let FetchError::Refused { status, code } = error else {
            return Self::Unavailable;
        };
        match code.as_str() {
            // RFC 8693, section 2.2.2: so is a token refused, or the server it is wanted for.
            "invalid_request" | "invalid_grant" | "invalid_target" | "invalid_scope"
            | "access_denied" => Self::Refused(code.as_str().into()),
            _ if status.is_client_error() && status.as_u16() != 429 => {
                Self::GatewayRefused(code.as_str().into())
            }
            _ => Self::Unavailable,
        }
    }
}
