//! `POST /admin/servers`, `PATCH` and `DELETE /admin/servers/{id}`: servers that operators add, change and remove while
//! gateways run.

use axum::extract::{Path, Request};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::added_servers::{AddedServers, ServerChangeError, ServerDefinition};
use crate::http::governance::{CallerContext, Code, Problem, read_body};
use crate::http::reply::json_value;
use crate::reload::ReloadReport;
use mooring_settings::Right;

/// Adds a server to all gateways of the store.
pub(super) async fn add(context: CallerContext, request: Request) -> Result<Response, Problem> {
    let servers = allowed(&context)?;
    let text: Value = read_body(&context.app, &context.identity, request).await?;
    let directory = &context.app.directory;
    let added = servers.add(text, |id| directory.serves(id.as_str())).await;
    answer(&context, "add server", StatusCode::CREATED, added)
}

/// Changes fields of a server that was added.
pub(super) async fn change(
    context: CallerContext,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let servers = allowed(&context)?;
    let patch: Value = read_body(&context.app, &context.identity, request).await?;
    answer(
        &context,
        "change server",
        StatusCode::OK,
        servers.change(&id, patch).await,
    )
}

/// Removes a server that was added.
pub(super) async fn remove(
    context: CallerContext,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let removed = allowed(&context)?.remove(&id).await;
    note_act(&context, "remove server", &removed);
    let report = removed?;
    Ok(json_value(StatusCode::OK, &json!({"report": report})))
}

fn allowed(context: &CallerContext) -> Result<AddedServers<'_>, Problem> {
    context.require(Right::Admin)?;
    let reloads = context.app.reloads.as_ref();
    let reloads = reloads
        .ok_or_else(|| Problem::new(Code::Unavailable, "this process cannot reload settings"))?;
    Ok(AddedServers {
        store: context.app.core.session_router.store(),
        reloads,
        operator: context.identity.principal.as_str(),
    })
}

fn answer(
    context: &CallerContext,
    act: &'static str,
    status: StatusCode,
    result: Result<(ServerDefinition, ReloadReport), ServerChangeError>,
) -> Result<Response, Problem> {
    note_act(context, act, &result);
    let (definition, report) = result?;
    let body = json!({"server": definition.fields, "note": definition.note, "report": report});
    Ok(json_value(status, &body))
}

/// One line for every act.
fn note_act<T>(context: &CallerContext, act: &'static str, result: &Result<T, ServerChangeError>) {
    let log = &context.app.core.request_log;
    let operator = log.user_digest(&context.identity.principal);
    let outcome = match result {
        Ok(_) => "done",
        Err(_) => "refused",
    };
    tracing::info!(target: "mooring::audit", %operator, act, outcome, "operator's act");
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
