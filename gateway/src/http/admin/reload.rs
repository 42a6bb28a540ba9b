//! `POST /admin/reload`: reloads the settings of this gateway, and answers with what has changed.

use axum::response::Response;

use super::context::{AdminContext, PREVIEW_QUERY};
use crate::added_servers::AddedServers;
use crate::http::rest::{ActHints, Code, Problem, RestRoute};
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
        .query(&PREVIEW_QUERY)
        .acting_tool("settings_reload", ActHints::DESTRUCTIVE)
        .replies::<ReloadReport>(),
    ]
}

async fn reload(context: AdminContext) -> Result<Response, Problem> {
    let is_preview = context.is_preview()?;
    context.operator.require(&context.identity, Right::Admin)?;
    if is_preview {
        let added = AddedServers::of(&context.operator, &context.identity, context.reloads()?);
        let checked = context.reloads()?.check(added.definitions().await?).await;
        return Ok(context.reply(&checked?));
    }
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
