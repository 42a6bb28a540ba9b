//! The credential of a request that may have to be fetched before it is sent.

use http::Method;

use super::credential_header::CredentialHeader;
use super::oauth::RequestToken;
use super::user_secret::RequestSecret;
use super::{HttpClient, TokenExchangeError, UserSecretError};
use mooring_protocol::Reply;

/// The credential of a request, besides its headers.
#[derive(Clone, Debug)]
pub(crate) enum RequestCredential {
    /// A token of an authorization server.
    Token(RequestToken),
    /// The secret that the user has stored.
    Secret(RequestSecret),
}

/// Why there is no credential for the caller. The request was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenExchangeError),
    /// There is no secret.
    #[error(transparent)]
    Secret(#[from] UserSecretError),
}

impl RequestCredential {
    /// The header to send; none if the request goes out without.
    ///
    /// # Errors
    /// There is no credential for the caller.
    pub(crate) async fn header(
        &self,
        client: &HttpClient,
    ) -> Result<Option<CredentialHeader>, CredentialError> {
        Ok(match self {
            Self::Token(token) => token
                .authorization(client)
                .await?
                .map(CredentialHeader::authorization),
            Self::Secret(secret) => secret.header().await?,
        })
    }

    /// Another one than this, which the server has refused; none if there is no other one.
    pub(crate) async fn renew(
        &self,
        client: &HttpClient,
        refused: &CredentialHeader,
    ) -> Option<CredentialHeader> {
        let Self::Token(token) = self else {
            return None;
        };
        let renewed = token.renew(client, &refused.value).await?;
        Some(CredentialHeader::authorization(renewed))
    }

    /// The reply to a request that was sent with this header. An open stream does not outlive a user's secret.
    pub(crate) fn watched(
        &self,
        method: &Method,
        header: Option<&CredentialHeader>,
        reply: Reply,
    ) -> Reply {
        match (self, header.and_then(|header| header.version)) {
            (Self::Secret(secret), Some(version)) if *method == Method::GET => {
                secret.cut_when_changed(reply, version)
            }
            _ => reply,
        }
    }
}
