//! The gateways of the fleet.

use axum::response::Response;

use super::context::AdminContext;
use crate::http::rest::{Problem, RestRoute};
use mooring_admin::WorkerList;
use mooring_settings::Right;

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get("/admin/workers", "Lists the gateways of the fleet", list)
            .needs(Right::FleetRead)
            .replies::<WorkerList>(),
    ]
}

async fn list(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let workers = context.operator.workers(&context.identity).await?;
    Ok(context.reply(&workers))
}
