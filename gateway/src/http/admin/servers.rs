//! The servers and their instances: listing, showing and parking them.

use axum::extract::Request;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;

use super::context::AdminContext;
use crate::http::rest::{ActHints, Problem, RestRoute};
use mooring_admin::{ActReply, ParkChange, ParkRequest, ServerDetail, ServerList};
use mooring_settings::Right;

/// Parks a server or one of its instances, or ends that.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ParkBody {
    /// The instance, as the server's page names it; the whole server without it.
    instance: Option<String>,
    /// Why, for others who see it; at most 512 bytes.
    #[serde(default)]
    note: String,
    /// Only say what would happen.
    #[serde(default)]
    preview: bool,
}

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get("/admin/servers", "Lists the servers of this gateway", list)
            .needs(Right::FleetRead)
            .reading_tool("servers_list")
            .replies::<ServerList>(),
        RestRoute::get(
            "/admin/servers/{server}",
            "Shows a server with its instances",
            show,
        )
        .needs(Right::FleetRead)
        .reading_tool("servers_show")
        .replies::<ServerDetail>(),
        RestRoute::post(
            "/admin/servers/{server}/park",
            "Gives a server, or one of its instances, no new sessions; those that are on it stay",
            park,
        )
        .needs(Right::ServersManage)
        .body::<ParkBody>()
        .acting_tool("servers_park", ActHints::REVERSIBLE)
        .replies::<ActReply>(),
        RestRoute::post(
            "/admin/servers/{server}/unpark",
            "Gives a parked server or instance new sessions again",
            unpark,
        )
        .needs(Right::ServersManage)
        .body::<ParkBody>()
        .acting_tool("servers_unpark", ActHints::REVERSIBLE)
        .replies::<ActReply>(),
    ]
}

async fn list(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let servers = context.operator.servers(&context.identity).await?;
    Ok(context.reply(&servers))
}

async fn show(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let server = (context.operator).server(&context.identity, context.path_part(0));
    Ok(context.reply(&server.await?))
}

async fn park(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let body: ParkBody = context.body(request).await?;
    change(&context, &body, ParkChange::Park(&body.note)).await
}

async fn unpark(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let body: ParkBody = context.body(request).await?;
    change(&context, &body, ParkChange::Unpark).await
}

async fn change(
    context: &AdminContext,
    body: &ParkBody,
    change: ParkChange<'_>,
) -> Result<Response, Problem> {
    let (operator, identity) = (&context.operator, &context.identity);
    let request = ParkRequest {
        server: context.path_part(0),
        instance: body.instance.as_deref(),
        change,
    };
    let reply = match body.preview {
        true => ActReply::Preview(operator.preview_park(identity, request).await?),
        false => ActReply::Progress(operator.park(identity, request).await?),
    };
    Ok(context.reply(&reply))
}
