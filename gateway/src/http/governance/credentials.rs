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
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::context::identify;
use super::problem::{Code, Problem};
use super::query::Query;
use crate::http::app::App;
use crate::http::reply::json_value;
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
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialBody {
    secret: String,
}

impl FromRequestParts<Arc<App>> for CredentialContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let (sender, identity) = identify(parts, app).await?;
        sender.admit();
        let params = RawPathParams::from_request_parts(parts, app)
            .await
            .map_err(|_| no_server())?;
        Ok(Self {
            server: params.iter().next().map(|(_, id)| id.to_owned()),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            app: Arc::clone(app),
            identity,
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
    let shown: Vec<Value> = shown.map(|(server, at)| shown_json(server, at)).collect();
    Ok(json_value(StatusCode::OK, &json!({"credentials": shown})))
}

/// `PUT /servers/{id}/credential`
pub(super) async fn put(context: CredentialContext, request: Request) -> Result<Response, Problem> {
    let (vault, server) = context.server()?;
    let read = body::read::<CredentialBody>(&context.app, &context.identity, request).await;
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
        &shown_json(server, Some(stored_at)),
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
    Ok(json_value(StatusCode::OK, &shown_json(server, None)))
}

/// `DELETE /credentials`: all that the caller has stored, or `user`.
pub(super) async fn delete_all(context: CredentialContext) -> Result<Response, Problem> {
    let query = Query::parse(&context.query, &["user"])?;
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
    Ok(json_value(StatusCode::OK, &json!({"deleted": deleted})))
}

fn shown_json(server: &ServerName, stored_at: Option<u64>) -> Value {
    json!({"server": server.as_str(), "stored_at": stored_at.map(rfc3339)})
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
