//! `GET /whoami`: who the gateway takes the caller for, and what it may use. What it may not use is not named.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::app::App;
use crate::http::reply::json_value;
use crate::http::rest::{Problem, Query, identify};
use mooring_identity::Identity;

/// An authenticated request about the caller.
pub(super) struct CallerContext {
    app: Arc<App>,
    identity: Arc<Identity>,
    query: String,
}

impl FromRequestParts<Arc<App>> for CallerContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = identify(parts, app).await?;
        caller.admit();
        Ok(Self {
            query: parts.uri.query().unwrap_or_default().to_owned(),
            app: Arc::clone(app),
            identity: caller.operator.identity,
        })
    }
}

/// Who a caller is, and what it may use.
#[derive(Serialize, JsonSchema)]
pub(super) struct Caller {
    user: String,
    /// The user's digest in logs and metrics.
    digest: String,
    teams: Vec<String>,
    roles: Vec<String>,
    scopes: Vec<String>,
    /// The rights beyond one server.
    rights: Vec<String>,
    /// The servers that the caller may use.
    servers: Vec<String>,
}

/// The caller.
pub(super) async fn show(context: CallerContext) -> Result<Response, Problem> {
    Query::parse(&context.query, &[])?;
    let CallerContext { app, identity, .. } = &context;
    let caller = Caller {
        user: identity.principal.as_str().to_owned(),
        digest: (app.core.request_log.user_digest(&identity.principal)).into(),
        teams: identity.teams.to_vec(),
        roles: identity.roles.clone(),
        scopes: identity.scopes.clone(),
        rights: (app.core.policy.rights_of(identity))
            .map(str::to_owned)
            .collect(),
        servers: (app.directory.usable_server_ids(identity).into_iter())
            .map(str::to_owned)
            .collect(),
    };
    Ok(json_value(StatusCode::OK, &caller))
}
