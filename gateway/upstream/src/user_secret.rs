//! The secrets that users have stored for a server, each sent with the requests for its own user.
//!
//! Invariant: a request for a user goes out with that user's secret or not at all, except the deletion of an upstream
//! session, which may go out without. No secret is in a log or an error.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method};
use mooring_session::names::{Principal, ServerName};

use super::Caller;
use super::credential_header::CredentialHeader;
use mooring_protocol::{Reply, ReplyBody};

/// How often it is checked that an open GET stream still has the current secret.
const STREAM_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// A secret as a user has stored it.
#[derive(Clone)]
pub struct UserSecret {
    /// The secret itself.
    pub text: Arc<str>,
    /// Differs between any two that were stored.
    pub version: u128,
}

impl fmt::Debug for UserSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("UserSecret")
    }
}

/// Why there is no secret for a request. It was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserSecretError {
    /// The user has stored none for the server, or has deleted it.
    #[error("you have stored no credential for this server: PUT one to /servers/{{id}}/credential")]
    Missing,
    /// The stored credential cannot be decrypted.
    #[error(
        "the credential that you have stored for this server cannot be read any more: PUT it to \
         /servers/{{id}}/credential again"
    )]
    Unreadable,
    /// The store is away.
    #[error("your credential for this server cannot be read at present")]
    Unavailable,
}

/// Where users' secrets are.
pub trait UserSecrets: fmt::Debug + Send + Sync {
    /// The user's secret for the server.
    fn get<'a>(
        &'a self,
        server: &'a ServerName,
        user: &'a Principal,
    ) -> BoxFuture<'a, Result<UserSecret, UserSecretError>>;
}

/// How a server gets the secrets of its users.
#[derive(Clone, Debug)]
pub struct SecretHeader {
    /// The header of requests.
    pub name: HeaderName,
    /// The prefix of its value.
    pub prefix: Box<str>,
    /// The secrets.
    pub secrets: Arc<dyn UserSecrets>,
}

/// The secret that one request is sent with.
#[derive(Clone, Debug)]
pub(crate) struct RequestSecret {
    header: Arc<SecretHeader>,
    server: ServerName,
    user: Principal,
    need: SecretNeed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretNeed {
    Required,
    /// The caller may have deleted it, but the upstream session must still be deleted.
    IfStored,
}

impl SecretHeader {
    /// The secret of a request for this caller. None for what the gateway does by itself.
    pub(crate) fn for_caller(
        self: &Arc<Self>,
        server: &ServerName,
        caller: &Caller<'_>,
        method: &Method,
    ) -> Option<RequestSecret> {
        (*caller.principal != Principal::gateway()).then(|| RequestSecret {
            header: Arc::clone(self),
            server: server.clone(),
            user: caller.principal.clone(),
            need: match *method == Method::DELETE {
                true => SecretNeed::IfStored,
                false => SecretNeed::Required,
            },
        })
    }
}

impl RequestSecret {
    /// The header with the secret. None if none is needed and there is none.
    ///
    /// # Errors
    /// There is no secret for the user.
    pub(crate) async fn header(&self) -> Result<Option<CredentialHeader>, UserSecretError> {
        let found = self.header.secrets.get(&self.server, &self.user).await;
        let secret = match found {
            Err(UserSecretError::Missing | UserSecretError::Unreadable)
                if self.need == SecretNeed::IfStored =>
            {
                return Ok(None);
            }
            found => found?,
        };
        let value = format!("{}{}", self.header.prefix, secret.text);
        let mut value = HeaderValue::from_str(&value).map_err(|_| UserSecretError::Unreadable)?;
        value.set_sensitive(true);
        Ok(Some(CredentialHeader {
            name: self.header.name.clone(),
            value,
            version: Some(secret.version),
        }))
    }

    /// The version of the user's secret.
    ///
    /// # Errors
    /// There is no secret for the user.
    pub(crate) async fn version(&self) -> Result<u128, UserSecretError> {
        let secret = self.header.secrets.get(&self.server, &self.user).await?;
        Ok(secret.version)
    }

    /// The reply to a GET that was sent with this version of the secret: its events end soon after the user has replaced
    /// or deleted that.
    pub(crate) fn cut_when_changed(&self, reply: Reply, version: u128) -> Reply {
        let ReplyBody::Events(events) = reply.body else {
            return reply;
        };
        let secret = self.clone();
        let changed = Box::pin(async move {
            loop {
                tokio::time::sleep(STREAM_CHECK_INTERVAL).await;
                match secret.version().await {
                    Ok(current) if current == version => {}
                    Err(UserSecretError::Unavailable) => {}
                    Ok(_) | Err(_) => return,
                }
            }
        });
        Reply {
            body: ReplyBody::Events(Box::pin(events.take_until(changed))),
            ..reply
        }
    }
}
