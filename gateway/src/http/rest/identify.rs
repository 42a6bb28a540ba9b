//! The caller of a request of the REST interface.

use std::sync::Arc;

use axum::Extension;
use axum::extract::FromRequestParts;
use http::request::Parts;

use super::frame::RequestId;
use super::problem::Problem;
use crate::http::app::App;
use crate::http::caller::{RequestHead, RequestSender};
use mooring_admin::OperatorIdentity;
use mooring_metrics as metrics;

/// The caller of a request that the gateway itself has made, for a call of a tool that the pipeline has admitted and counted.
/// No request from outside can have one: it is no header.
#[derive(Clone, Debug)]
pub(in crate::http) struct ToolCaller {
    /// Who calls, with the id of the request.
    pub(in crate::http) operator: OperatorIdentity,
    /// Whether a page in a browser calls that is none of the gateway's own.
    pub(in crate::http) is_from_foreign_page: bool,
}

/// The caller of a request.
pub(in crate::http) struct RestCaller {
    /// Who it is, with the id of the request.
    pub(in crate::http) operator: OperatorIdentity,
    /// None where it calls a tool.
    sender: Option<Arc<RequestSender>>,
}

impl RestCaller {
    /// Marks the sender as known.
    pub(in crate::http) fn admit(&self) {
        if let Some(sender) = &self.sender {
            sender.admit();
        }
    }
}

/// Identifies the caller, and counts the request.
pub(in crate::http) async fn identify(
    parts: &mut Parts,
    app: &Arc<App>,
) -> Result<RestCaller, Problem> {
    if let Some(caller) = parts.extensions.get::<ToolCaller>() {
        return Ok(RestCaller {
            operator: caller.operator.clone(),
            sender: None,
        });
    }
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
    let id = parts.extensions.get::<RequestId>();
    Ok(RestCaller {
        operator: OperatorIdentity {
            identity,
            request_id: id.map(RequestId::text).unwrap_or_default(),
        },
        sender: Some(sender),
    })
}
