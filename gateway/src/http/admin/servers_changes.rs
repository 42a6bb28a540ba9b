//! `POST /admin/servers`, `PATCH` and `DELETE /admin/servers/{server}`: servers that operators add, change and remove while
//! gateways run.

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::context::AdminContext;
use crate::added_servers::{AddedServers, ServerChangeError, ServerDefinition};
use crate::http::rest::{Code, Problem, RestRoute};
use crate::reload::ReloadReport;
use mooring_settings::Right;

/// What became of an added server.
#[derive(Serialize, JsonSchema)]
struct ServerChange {
    /// Its definition, as in the settings.
    server: Map<String, Value>,
    /// The description that the operator gave it; may be empty.
    note: String,
    /// What this gateway has changed.
    report: ReloadReport,
}

/// What the removal of a server has changed.
#[derive(Serialize, JsonSchema)]
struct ServerRemoval {
    /// What this gateway has changed.
    report: ReloadReport,
}

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::post(
            "/admin/servers",
            "Adds a server to all gateways of the store",
            add,
        )
        .needs(Right::Admin)
        .body::<Map<String, Value>>()
        .status(StatusCode::CREATED)
        .replies::<ServerChange>(),
        RestRoute::patch(
            "/admin/servers/{server}",
            "Changes fields of a server that was added",
            change,
        )
        .needs(Right::Admin)
        .body::<Map<String, Value>>()
        .replies::<ServerChange>(),
        RestRoute::delete(
            "/admin/servers/{server}",
            "Removes a server that was added",
            remove,
        )
        .needs(Right::Admin)
        .replies::<ServerRemoval>(),
    ]
}

async fn add(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let servers = allowed(&context)?;
    let definition: Value = context.body(request).await?;
    let subject = subject(&definition);
    let added = servers
        .add(definition, |id| context.operator.serves(id.as_str()))
        .await;
    context.audit("add server", &subject, &added);
    let mut reply = context.reply(&change_of(added?));
    *reply.status_mut() = StatusCode::CREATED;
    Ok(reply)
}

async fn change(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let servers = allowed(&context)?;
    let patch: Value = context.body(request).await?;
    let id = context.path_part(0);
    let changed = servers.change(id, patch).await;
    context.audit("change server", id, &changed);
    Ok(context.reply(&change_of(changed?)))
}

async fn remove(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let id = context.path_part(0);
    let removed = allowed(&context)?.remove(id).await;
    context.audit("remove server", id, &removed);
    Ok(context.reply(&ServerRemoval { report: removed? }))
}

fn allowed(context: &AdminContext) -> Result<AddedServers<'_>, Problem> {
    context.operator.require(&context.identity, Right::Admin)?;
    Ok(AddedServers {
        store: context.operator.store(),
        reloads: context.reloads()?,
        operator: context.identity.identity.principal.as_str(),
    })
}

/// The id in a definition, for the audit line.
fn subject(definition: &Value) -> String {
    let id = ["id", "name"]
        .into_iter()
        .find_map(|name| definition.get(name)?.as_str());
    id.unwrap_or("a server without id").to_owned()
}

fn change_of((definition, report): (ServerDefinition, ReloadReport)) -> ServerChange {
    ServerChange {
        server: definition.fields,
        note: definition.note,
        report,
    }
}

impl From<ServerChangeError> for Problem {
    fn from(error: ServerChangeError) -> Self {
        let code = match &error {
            ServerChangeError::Invalid(_) => Code::ServerInvalid,
            ServerChangeError::Exists(_) => Code::ServerExists,
            ServerChangeError::NotAdded(_) => Code::ServerNotFound,
            ServerChangeError::Store(_) | ServerChangeError::Reload(_) => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}
