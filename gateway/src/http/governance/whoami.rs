//! `GET /whoami`: who the gateway takes the caller for, and what it may use. What it may not use is not named.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use serde_json::json;

use super::context::{identify, require};
use super::problem::Problem;
use super::query::Query;
use crate::http::app::App;
use crate::http::reply::json_value;
use mooring_identity::Identity;
use mooring_settings::Right;

/// An authenticated request that is for no code server.
pub(in crate::http) struct CallerContext {
    pub(in crate::http) app: Arc<App>,
    pub(in crate::http) identity: Arc<Identity>,
    query: String,
}

impl FromRequestParts<Arc<App>> for CallerContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let (sender, identity) = identify(parts, app).await?;
        sender.admit();
        Ok(Self {
            query: parts.uri.query().unwrap_or_default().to_owned(),
            app: Arc::clone(app),
            identity,
        })
    }
}

impl CallerContext {
    /// Refuses a caller without this right.
    pub(in crate::http) fn require(&self, right: Right) -> Result<(), Problem> {
        require(&self.app, &self.identity, right)
    }
}

/// The caller.
pub(super) async fn show(context: CallerContext) -> Result<Response, Problem> {
    Query::parse(&context.query, &[])?;
    let CallerContext { app, identity, .. } = &context;
    let rights: Vec<&str> = app.core.policy.rights_of(identity).collect();
    let caller = json!({
        "user": identity.principal.as_str(),
        "digest": app.core.request_log.user_digest(&identity.principal),
        "teams": &*identity.teams,
        "roles": identity.roles,
        "scopes": identity.scopes,
        "rights": rights,
        "servers": app.directory.usable_server_ids(identity),
    });
    Ok(json_value(StatusCode::OK, &caller))
}
