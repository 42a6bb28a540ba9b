//! The servers and their instances.

use axum::response::Response;

use super::context::AdminContext;
use crate::http::rest::{Problem, RestRoute};
use mooring_admin::{ServerDetail, ServerList};
use mooring_settings::Right;

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get("/admin/servers", "Lists the servers of this gateway", list)
            .needs(Right::FleetRead)
            .replies::<ServerList>(),
        RestRoute::get(
            "/admin/servers/{server}",
            "Shows a server with its instances",
            show,
        )
        .needs(Right::FleetRead)
        .replies::<ServerDetail>(),
    ]
}

async fn list(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let servers = context.operator.servers(&context.identity).await?;
    Ok(context.reply(&servers))
}

async fn show(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let server = context
        .operator
        .server(&context.identity, context.path_part(0));
    Ok(context.reply(&server.await?))
}
