//! `POST /admin/reload`: reloads the settings of this gateway, and answers with what has changed.

use axum::response::Response;
use http::StatusCode;

use crate::http::governance::{CallerContext, Code, Problem};
use crate::http::reply::json_value;
use crate::reload::ReloadError;
use mooring_settings::Right;

/// Reloads the settings.
pub(super) async fn reload(context: CallerContext) -> Result<Response, Problem> {
    context.require(Right::Admin)?;
    let CallerContext { app, identity, .. } = &context;
    let unavailable = || Problem::new(Code::Unavailable, "this process cannot reload settings");
    let reloads = app.reloads.as_ref().ok_or_else(unavailable)?;
    let result = reloads.reload().await;
    let operator = app.core.request_log.user_digest(&identity.principal);
    let outcome = match &result {
        Ok(_) => "done",
        Err(_) => "refused",
    };
    tracing::info!(target: "mooring::audit", %operator, act = "reload", outcome, "operator's act");
    match result {
        Ok(report) => {
            let report = serde_json::to_value(report).map_err(|_| Problem::internal())?;
            Ok(json_value(StatusCode::OK, &report))
        }
        Err(error @ ReloadError::Refused(_)) => {
            Err(Problem::new(Code::SettingsRefused, error.to_string()))
        }
        Err(error @ ReloadError::Stopping) => {
            Err(Problem::new(Code::Unavailable, error.to_string()))
        }
    }
}
