//! The caller of a request of the REST interface.

use std::sync::Arc;

use axum::Extension;
use axum::extract::FromRequestParts;
use http::request::Parts;

use super::problem::Problem;
use crate::http::app::App;
use crate::http::caller::{RequestHead, RequestSender};
use mooring_identity::Identity;
use mooring_metrics as metrics;

/// Identifies the caller, and counts the request.
pub(in crate::http) async fn identify(
    parts: &mut Parts,
    app: &Arc<App>,
) -> Result<(Arc<RequestSender>, Arc<Identity>), Problem> {
    let Extension(sender) = Extension::<Arc<RequestSender>>::from_request_parts(parts, app)
        .await
        .map_err(|_| Problem::internal())?;
    let identified = app.identify(RequestHead::of(&sender, parts)).await;
    let identity = identified.map_err(Problem::of_caller)?;
    app.core.count_requests(&identity, 1).map_err(|wait| {
        let limit = "listen.requests_per_user_per_minute";
        metrics::requests_refused(limit);
        let user = app.core.request_log.user_digest(&identity.principal);
        tracing::info!(limit, %user, "request refused: its user is at a limit");
        Problem::too_many_requests(wait)
    })?;
    app.core.usages.of(&identity.principal).charge_task().await;
    Ok((sender, identity))
}
