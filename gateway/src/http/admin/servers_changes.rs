//! `POST /admin/servers`, `PATCH` and `DELETE /admin/servers/{server}`: servers that operators add, change and remove while
//! gateways run.

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::context::{AdminContext, PREVIEW_QUERY};
use crate::added_servers::{AddedServers, ServerChangeError, ServerDefinition};
use crate::http::rest::{ActHints, Code, Problem, RestRoute};
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
        .query(&PREVIEW_QUERY)
        .body::<Map<String, Value>>()
        .status(StatusCode::CREATED)
        .acting_tool("servers_add", ActHints::REVERSIBLE)
        .replies::<ServerChange>(),
        RestRoute::patch(
            "/admin/servers/{server}",
            "Changes fields of a server that was added",
            change,
        )
        .needs(Right::Admin)
        .query(&PREVIEW_QUERY)
        .body::<Map<String, Value>>()
        .acting_tool("servers_change", ActHints::DESTRUCTIVE)
        .replies::<ServerChange>(),
        RestRoute::delete(
            "/admin/servers/{server}",
            "Removes a server that was added",
            remove,
        )
        .needs(Right::Admin)
        .query(&PREVIEW_QUERY)
        .acting_tool("servers_remove", ActHints::DESTRUCTIVE)
        .replies::<ServerRemoval>(),
    ]
}

async fn add(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let (servers, is_preview) = allowed(&context)?;
    let definition: Value = context.definition(request).await?;
    let subject = subject(&definition);
    let added = servers
        .add(definition, |id| context.operator.serves(id.as_str()))
        .await;
    audit(&context, is_preview, "add server", &subject, &added);
    let mut reply = context.reply(&change_of(added?));
    *reply.status_mut() = StatusCode::CREATED;
    Ok(reply)
}

async fn change(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let (servers, is_preview) = allowed(&context)?;
    let patch: Value = context.definition(request).await?;
    let id = context.path_part(0);
    let changed = servers.change(id, patch).await;
    audit(&context, is_preview, "change server", id, &changed);
    Ok(context.reply(&change_of(changed?)))
}

async fn remove(context: AdminContext) -> Result<Response, Problem> {
    let (servers, is_preview) = allowed(&context)?;
    let id = context.path_part(0);
    let removed = servers.remove(id).await;
    audit(&context, is_preview, "remove server", id, &removed);
    Ok(context.reply(&ServerRemoval { report: removed? }))
}

/// The servers that the caller may change, and whether the change is only to be checked.
fn allowed(context: &AdminContext) -> Result<(AddedServers<'_>, bool), Problem> {
    let is_preview = context.is_preview()?;
    context.operator.require(&context.identity, Right::Admin)?;
    let servers = AddedServers::of(&context.operator, &context.identity, context.reloads()?);
    let servers = AddedServers {
        is_preview,
        ..servers
    };
    Ok((servers, is_preview))
}

/// What was only checked is no act.
fn audit<T>(
    context: &AdminContext,
    is_preview: bool,
    act: &'static str,
    subject: &str,
    result: &Result<T, ServerChangeError>,
) {
    if !is_preview {
        context.audit(act, subject, result);
    }
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
