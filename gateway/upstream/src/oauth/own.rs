//! The gateway's own token for a server: OAuth client credentials (RFC 6749, section 4.4), fetched before they are needed.
//!
//! Invariant: a request waits for this token only if the server has refused the one before; a token that was fetched is
//! sent until it expires, or until one was fetched after it or with a newer secret.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until};

use super::endpoint::{
    FetchError, FetchedToken, RENEW_PAUSE, SECRET_READ_EVERY, TokenEndpoint, TokenRequest,
};
use crate::metrics::{TokenFetch, token_fetched};
use crate::{HttpClient, with_causes};

/// Pauses after failures: doubled from the first to the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The token; none until it is fetched.
#[derive(Default)]
pub(super) struct OwnToken {
    token: RwLock<Option<ValidToken>>,
    /// When it was last fetched because the server refused the one before. Its holder fetches.
    renewed_at: Mutex<Option<Instant>>,
    renewed: Notify,
}

struct ValidToken {
    authorization: HeaderValue,
    due: TokenDue,
    expires_at: Instant,
}

/// When another token is fetched.
#[derive(Clone, Copy)]
pub(super) struct TokenDue {
    /// At this time,
    at: Instant,
    /// or when the secret has another number than this.
    generation: u64,
}

impl OwnToken {
    /// The value of the Authorization header; none without a valid token.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        let valid = token
            .as_ref()
            .filter(|token| Instant::now() < token.expires_at);
        valid.map(|token| token.authorization.clone())
    }

    /// Keeps the token current, until it is dropped. `fetched` is called after the first attempt.
    pub(super) async fn keep_current(
        &self,
        endpoint: &TokenEndpoint,
        client: &HttpClient,
        fetched: impl FnOnce(),
    ) {
        let mut fetched = Some(fetched);
        let mut pause = RETRY_MIN;
        loop {
            let due = match self.fetch(endpoint, client).await {
                Ok(due) => {
                    pause = RETRY_MIN;
                    due
                }
                Err(_) => {
                    let at = Instant::now() + pause;
                    pause = (pause * 2).min(RETRY_MAX);
                    let generation = endpoint.generation();
                    TokenDue { at, generation }
                }
            };
            if let Some(fetched) = fetched.take() {
                fetched();
            }
            self.wait_until_due(endpoint, due).await;
        }
    }

    /// Until a token is due. One that was fetched meanwhile is due later.
    async fn wait_until_due(&self, endpoint: &TokenEndpoint, mut due: TokenDue) {
        loop {
            let read_at = Instant::now() + SECRET_READ_EVERY;
            tokio::select! {
                () = sleep_until(due.at.min(read_at)) => {
                    if due.at <= Instant::now() || endpoint.read_generation().await != due.generation {
                        return;
                    }
                }
                () = self.renewed.notified() => {
                    let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
                    due = token.as_ref().map_or(due, |token| token.due);
                }
            }
        }
    }

    /// Another token than this one, which the server has refused; none if there is no other one.
    pub(super) async fn renew(
        &self,
        endpoint: &TokenEndpoint,
        client: &HttpClient,
        refused: &HeaderValue,
    ) -> Option<HeaderValue> {
        let mut renewed_at = self.renewed_at.lock().await;
        let current = self.authorization();
        if current.as_ref().is_some_and(|current| current != refused) {
            return current;
        }
        if renewed_at.is_some_and(|at| at.elapsed() < RENEW_PAUSE) {
            return None;
        }
        *renewed_at = Some(Instant::now());
        tracing::info!(server = %endpoint.server(), "the server refused the gateway's token; another one is fetched");
        self.fetch(endpoint, client).await.ok()?;
        self.renewed.notify_one();
        self.authorization()
    }

    /// Fetches a token. Returns when the next one is due.
    async fn fetch(
        &self,
        endpoint: &TokenEndpoint,
        client: &HttpClient,
    ) -> Result<TokenDue, FetchError> {
        let server = endpoint.server();
        let fetched = endpoint
            .fetch(client, TokenRequest::ClientCredentials)
            .await;
        let fetched = fetched.inspect_err(|error| {
            token_fetched(TokenFetch::Failed);
            tracing::warn!(%server, cause = %with_causes(error), "fetching a token for the server failed");
        })?;
        token_fetched(TokenFetch::Ok);
        tracing::debug!(%server, valid_seconds = fetched.valid.as_secs(), "a token for the server was fetched");
        Ok(self.replace(fetched))
    }

    /// The token takes effect, unless the one before was fetched with a newer secret. Returns when the next one is due.
    pub(super) fn replace(&self, fetched: FetchedToken) -> TokenDue {
        let now = Instant::now();
        let mut token = self.token.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(newer) = token.as_ref()
            && newer.due.generation > fetched.generation
        {
            return newer.due;
        }
        let due = TokenDue {
            at: now + (fetched.valid * 4 / 5).max(RETRY_MIN),
            generation: fetched.generation,
        };
        *token = Some(ValidToken {
            authorization: fetched.authorization,
            due,
            expires_at: now + fetched.valid,
        });
        due
    }
}
