//! The tokens of an authorization server with which the gateway calls a server: its own, and one for each caller in
//! exchange for the caller's.
//!
//! Invariants: a request for a caller whose token is exchanged goes out with that caller's token or not at all; no token
//! and no secret is in a log or an error; an authorization server is asked once for one token, however many requests
//! wait for it.

mod endpoint;
mod exchanged;
mod own;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Method};
use mooring_secrets::access_token::AccessToken;
use mooring_session::names::{Principal, ServerName};
use mooring_settings::{OauthSettings, TokenGrant};

use self::endpoint::TokenEndpoint;
use self::exchanged::ExchangedTokens;
pub use self::exchanged::TokenExchangeError;
use self::own::OwnToken;
use super::{Caller, HttpClient};

/// The tokens for one server.
pub struct OauthTokens {
    endpoint: TokenEndpoint,
    own: OwnToken,
    /// None where every caller's requests have the gateway's own token.
    exchanged: Option<Arc<ExchangedTokens>>,
}

impl fmt::Debug for OauthTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OauthTokens")
            .field("server", self.endpoint.server())
            .finish_non_exhaustive()
    }
}

impl OauthTokens {
    /// The tokens of this server; none is fetched yet.
    #[must_use]
    pub fn new(server: ServerName, settings: OauthSettings) -> Self {
        Self {
            own: OwnToken::default(),
            exchanged: match settings.grant {
                TokenGrant::ClientCredentials => None,
                TokenGrant::TokenExchange => Some(Arc::default()),
            },
            endpoint: TokenEndpoint::new(server, settings),
        }
    }

    /// The server that the tokens are for.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        self.endpoint.server()
    }

    /// Whether the gateway has a valid token of its own.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.own.authorization().is_some()
    }

    /// Keeps the gateway's own token current, until it is dropped. `fetched` is called after the first attempt.
    pub async fn keep_current(&self, client: &HttpClient, fetched: impl FnOnce()) {
        self.own.keep_current(&self.endpoint, client, fetched).await;
    }

    /// The SHA-256 of the token of this caller, if it is exchanged.
    pub(crate) fn exchanged_digest(&self, caller: &Caller<'_>) -> Option<[u8; 32]> {
        let token = caller.token.filter(|_| self.exchanged.is_some());
        token.map(|token| *token.digest())
    }

    /// The token that a request for this caller is sent with. What the gateway does by itself has the gateway's own, as
    /// has the deletion of a session whose caller is gone.
    pub(crate) fn for_caller(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        method: &Method,
    ) -> RequestToken {
        let is_cleaning = *method == Method::DELETE || *caller.principal == Principal::gateway();
        let subject = match (&self.exchanged, caller.token) {
            (None, _) => Subject::Gateway,
            (Some(_), None) if is_cleaning => Subject::Gateway,
            (Some(exchanged), token) => Subject::Caller {
                token: token.cloned(),
                exchanged: Arc::clone(exchanged),
            },
        };
        RequestToken {
            tokens: Arc::clone(self),
            subject,
        }
    }
}

/// The subject of a token.
#[derive(Clone)]
enum Subject {
    Gateway,
    /// A caller, with the token to exchange, and the tokens that were exchanged before.
    Caller {
        token: Option<Arc<AccessToken>>,
        exchanged: Arc<ExchangedTokens>,
    },
}

/// The token that one request is sent with.
#[derive(Clone)]
pub(crate) struct RequestToken {
    tokens: Arc<OauthTokens>,
    subject: Subject,
}

impl fmt::Debug for RequestToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RequestToken")
    }
}

impl RequestToken {
    /// The value of the Authorization header. None if the gateway has no token of its own: the server decides about such a
    /// request.
    ///
    /// # Errors
    /// There is no token for the caller.
    pub(crate) async fn authorization(
        &self,
        client: &HttpClient,
    ) -> Result<Option<HeaderValue>, TokenExchangeError> {
        let OauthTokens { endpoint, own, .. } = &*self.tokens;
        match &self.subject {
            Subject::Gateway => Ok(own.authorization()),
            Subject::Caller { token, exchanged } => {
                let token = token.as_ref().ok_or(TokenExchangeError::NoToken)?;
                exchanged.get(endpoint, client, token).await.map(Some)
            }
        }
    }

    /// Another token, after the server has refused a request with this one; none if there is no other one. It is fetched
    /// also if the request is given up meanwhile: others wait for it, and may not fetch one soon.
    pub(crate) async fn renew(
        &self,
        client: &HttpClient,
        refused: &HeaderValue,
    ) -> Option<HeaderValue> {
        let (token, client, refused) = (self.clone(), client.clone(), refused.clone());
        let renewing = tokio::spawn(async move { token.fetch_another(&client, &refused).await });
        renewing.await.ok().flatten()
    }

    async fn fetch_another(
        &self,
        client: &HttpClient,
        refused: &HeaderValue,
    ) -> Option<HeaderValue> {
        let OauthTokens { endpoint, own, .. } = &*self.tokens;
        match &self.subject {
            Subject::Gateway => own.renew(endpoint, client, refused).await,
            Subject::Caller { token, exchanged } => {
                let token = token.as_ref()?;
                exchanged.renew(endpoint, client, token, refused).await
            }
        }
    }
}
