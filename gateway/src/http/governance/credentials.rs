//! The credentials that users store for servers. They are write-only.
//!
//! Invariant: a user stores, sees and deletes their own, at servers that they may use. An administrator can only delete
//! what another user has stored.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use mooring_session::names::{Principal, ServerName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::app::App;
use crate::http::reply::json_value;
use crate::http::rest::{Code, Problem, Query, QueryParameter, identify, read_body};
use crate::vault::{Vault, VaultError};
use mooring_identity::Identity;
use mooring_settings::Right;
use mooring_store::rfc3339;

/// An authenticated request about the credentials of users.
pub(super) struct CredentialContext {
    app: Arc<App>,
    identity: Arc<Identity>,
    query: String,
    server: Option<String>,
}

/// A credential to store.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialBody {
    secret: String,
}

/// Whether a user has stored a credential for a server.
#[derive(Serialize, JsonSchema)]
pub(super) struct CredentialView {
    server: String,
    /// When (RFC 3339); none if there is none.
    stored_at: Option<String>,
}

/// The servers that the caller may store credentials for.
#[derive(Serialize, JsonSchema)]
pub(super) struct CredentialList {
    credentials: Vec<CredentialView>,
}

/// What deleting has done.
#[derive(Serialize, JsonSchema)]
pub(super) struct DeletedCredentials {
    /// Whether there was any.
    deleted: bool,
}

impl FromRequestParts<Arc<App>> for CredentialContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = identify(parts, app).await?;
        caller.admit();
        let params = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|_| no_server())?;
        Ok(Self {
            server: params.iter().next().map(|(_, id)| id.to_owned()),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            app: Arc::clone(app),
            identity: caller.operator.identity,
        })
    }
}

impl CredentialContext {
    /// The vault and the server of the path, if the caller may use it and stores credentials for it.
    fn server(&self) -> Result<(&Vault, &ServerName), Problem> {
        Query::parse(&self.query, &[])?;
        let id = self.server.as_deref().unwrap_or_default();
        let server = self.servers().find(|server| server.as_str() == id);
        let server = server.filter(|_| self.app.core.policy.may_use(&self.identity, id));
        let vault = self.app.vault.as_deref();
        vault.zip(server).ok_or_else(no_server)
    }

    /// Every server that users store credentials for.
    fn servers(&self) -> impl Iterator<Item = &ServerName> {
        let with_secrets = self.app.core.servers.iter();
        let with_secrets = with_secrets.filter(|server| server.user_secret.is_some());
        with_secrets.map(|server| &server.id)
    }

    fn note(&self, done: &str, server: Option<&ServerName>, user: &Principal) {
        let server = server.map(ServerName::as_str);
        let user = self.app.core.request_log.user_digest(user);
        tracing::info!(server, %user, "a user's credential was {done}");
    }
}

/// The parameters of deleting all.
pub(super) const DELETE_QUERY: [QueryParameter; 1] = [QueryParameter::new(
    "user",
    "those of this user, with the right `admin`; one's own by default",
)];

/// `GET /credentials`: the servers that the caller may store credentials for, with when that was done.
pub(super) async fn list(context: CredentialContext) -> Result<Response, Problem> {
    Query::parse(&context.query, &[])?;
    let CredentialContext { app, identity, .. } = &context;
    let servers = context.servers();
    let usable = servers.filter(|server| app.core.policy.may_use(identity, server.as_str()));
    let servers: Vec<_> = usable.collect();
    let stored_at = match &app.vault {
        Some(vault) => vault.stored_at(&servers, &identity.principal).await?,
        None => Vec::new(),
    };
    let shown = servers.iter().zip(stored_at);
    let credentials = shown.map(|(server, at)| CredentialView::of(server, at));
    let list = CredentialList {
        credentials: credentials.collect(),
    };
    Ok(json_value(StatusCode::OK, &list))
}

/// `PUT /servers/{id}/credential`
pub(super) async fn put(context: CredentialContext, request: Request) -> Result<Response, Problem> {
    let (vault, server) = context.server()?;
    let read = read_body::<CredentialBody>(&context.app, &context.identity, request).await;
    // The parser's message would repeat a text in the wrong place, which may be the secret.
    let CredentialBody { secret } = read.map_err(|problem| match problem.code() {
        Code::InvalidBody => Problem::new(Code::InvalidBody, "the body is {\"secret\": \"...\"}"),
        _ => problem,
    })?;
    let user = &context.identity.principal;
    let stored_at = vault.put(server, user, &secret).await?;
    context.note("stored", Some(server), user);
    Ok(json_value(
        StatusCode::OK,
        &CredentialView::of(server, Some(stored_at)),
    ))
}

/// `DELETE /servers/{id}/credential`
pub(super) async fn delete(context: CredentialContext) -> Result<Response, Problem> {
    let (vault, server) = context.server()?;
    let user = &context.identity.principal;
    if !vault.delete(&[server], user).await? {
        let message = "you have stored no credential for this server";
        return Err(Problem::new(Code::CredentialNotFound, message));
    }
    context.note("deleted", Some(server), user);
    Ok(json_value(
        StatusCode::OK,
        &CredentialView::of(server, None),
    ))
}

/// `DELETE /credentials`: all that the caller has stored, or `user`.
pub(super) async fn delete_all(context: CredentialContext) -> Result<Response, Problem> {
    let query = Query::parse(&context.query, &DELETE_QUERY)?;
    let own = &context.identity.principal;
    let user = match query.text("user") {
        None => own.clone(),
        Some(user) => Principal::parse(user.as_bytes())
            .map_err(|error| Problem::new(Code::InvalidQuery, error.to_string()))?,
    };
    if user != *own
        && !context
            .app
            .core
            .policy
            .has_right(&context.identity, Right::Admin)
    {
        let message = "the credentials of other users can be deleted with the right admin";
        return Err(Problem::new(Code::Forbidden, message));
    }
    let servers: Vec<_> = context.servers().collect();
    let deleted = match &context.app.vault {
        Some(vault) => vault.delete(&servers, &user).await?,
        None => false,
    };
    if deleted {
        context.note("deleted", None, &user);
    }
    Ok(json_value(StatusCode::OK, &DeletedCredentials { deleted }))
}

impl CredentialView {
    fn of(server: &ServerName, stored_at: Option<u64>) -> Self {
        Self {
            server: server.as_str().to_owned(),
            stored_at: stored_at.map(rfc3339),
        }
    }
}

fn no_server() -> Problem {
    Problem::new(
        Code::ServerNotFound,
        "no server that users store credentials for has this id",
    )
}

impl From<VaultError> for Problem {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Invalid => Self::new(Code::CredentialInvalid, error.to_string()),
            VaultError::Store(error) => {
                tracing::warn!(%error, "credentials could not be read or stored");
                Self::new(Code::Unavailable, "the store is not available")
            }
            VaultError::Seal(error) => {
                tracing::error!(%error, "a credential was not stored");
                Self::internal()
            }
        }
    }
}
