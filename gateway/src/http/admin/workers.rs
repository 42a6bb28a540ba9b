//! The gateways of the fleet: listing and draining them.

use axum::extract::Request;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;

use super::context::AdminContext;
use crate::http::rest::{ActHints, Problem, RestRoute};
use mooring_admin::{ActReply, DrainChange, WorkerList};
use mooring_settings::Right;

/// Drains a gateway, or ends that.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DrainBody {
    /// Why, for others who see it; at most 512 bytes.
    #[serde(default)]
    note: String,
    /// Only say what would happen.
    #[serde(default)]
    preview: bool,
}

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get("/admin/workers", "Lists the gateways of the fleet", list)
            .needs(Right::FleetRead)
            .reading_tool("workers_list")
            .replies::<WorkerList>(),
        RestRoute::post(
            "/admin/workers/{worker}/drain",
            "Drains a gateway, by its id for this boot of it or by its name for every boot",
            drain,
        )
        .needs(Right::FleetManage)
        .body::<DrainBody>()
        .acting_tool("workers_drain", ActHints::REVERSIBLE)
        .replies::<ActReply>(),
        RestRoute::post(
            "/admin/workers/{worker}/undrain",
            "Ends the draining that was asked for by exactly this id or name",
            undrain,
        )
        .needs(Right::FleetManage)
        .body::<DrainBody>()
        .acting_tool("workers_undrain", ActHints::REVERSIBLE)
        .replies::<ActReply>(),
    ]
}

async fn list(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let workers = context.operator.workers(&context.identity).await?;
    Ok(context.reply(&workers))
}

async fn drain(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let DrainBody { note, preview } = context.body(request).await?;
    change(&context, DrainChange::Drain(&note), preview).await
}

async fn undrain(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let DrainBody { preview, .. } = context.body(request).await?;
    change(&context, DrainChange::Undrain, preview).await
}

async fn change(
    context: &AdminContext,
    change: DrainChange<'_>,
    preview: bool,
) -> Result<Response, Problem> {
    let (operator, identity, worker) = (&context.operator, &context.identity, context.path_part(0));
    let reply = match preview {
        true => ActReply::Preview(operator.preview_drain(identity, worker, change).await?),
        false => ActReply::Progress(operator.drain(identity, worker, change).await?),
    };
    Ok(context.reply(&reply))
}
