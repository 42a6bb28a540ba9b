//! `POST /admin/reload`: reloads the settings of this gateway, and answers with what has changed.

use axum::response::Response;

use super::context::AdminContext;
use crate::http::rest::{Code, Problem, RestRoute};
use crate::reload::{ReloadError, ReloadReport};
use mooring_settings::Right;

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::post(
            "/admin/reload",
            "Reloads the settings of this gateway; nothing changes if any is refused",
            reload,
        )
        .needs(Right::Admin)
        .replies::<ReloadReport>(),
    ]
}

async fn reload(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    context.operator.require(&context.identity, Right::Admin)?;
    let result = context.reloads()?.reload().await;
    context.audit("reload", "settings", &result);
    Ok(context.reply(&result?))
}

impl From<ReloadError> for Problem {
    fn from(error: ReloadError) -> Self {
        let code = match &error {
            ReloadError::Refused(_) => Code::SettingsRefused,
            ReloadError::Stopping => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}
