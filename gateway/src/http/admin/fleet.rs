//! How sessions are spread over the fleet, and who sends most.

use axum::response::Response;

use super::context::AdminContext;
use crate::http::rest::{Problem, RestRoute};
use mooring_admin::FleetView;
use mooring_pipeline::TopSenders;
use mooring_settings::Right;

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get(
            "/admin/fleet",
            "Shows how sessions are spread over gateways and instances",
            show,
        )
        .needs(Right::FleetRead)
        .reading_tool("fleet_show")
.replies::<FleetView>(),
        RestRoute::get(
            "/admin/top",
            "Shows which users and sessions send most to this gateway, in the last one to two minutes",
            top,
        )
        .needs(Right::SessionsRead)
        .reading_tool("fleet_top")
.replies::<TopSenders>(),
    ]
}

async fn show(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let fleet = context.operator.fleet(&context.identity).await?;
    Ok(context.reply(&fleet))
}

async fn top(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    Ok(context.reply(&context.operator.top(&context.identity)?))
}
