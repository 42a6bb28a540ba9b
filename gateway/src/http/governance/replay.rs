//! `POST .../replay {mode}`: replays a recorded run in the caller's session.
//!
//! Invariant: no code runs for a caller who may not run any at the server. Hooks are asked about a replay as about the
//! call of `shell_exec` that it is.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use strum::VariantNames;

use super::context::GovernanceContext;
use super::runs;
use crate::http::reply::json_value;
use crate::http::rest::{Code, Problem, read_body};
use mooring_code::records::RunId;
use mooring_code::replay::{ReplayMode, ReplayRequest};
use mooring_code::server::Repeater;
use mooring_metrics as metrics;
use mooring_pipeline::NestedServers;
use mooring_pipeline::hooks::{CallOutcome, CallRoute, HookRefusal, HookedCall};
use mooring_usage::for_same_user;

/// The body.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayBody {
    mode: Option<String>,
}

/// Replays the run. It is completed even if the caller disconnects.
pub(super) async fn replay(
    context: GovernanceContext,
    request: Request,
) -> Result<Response, Problem> {
    context.query(&[])?;
    let body: ReplayBody = read_body(&context.app, &context.identity, request).await?;
    let mode = match body.mode.as_deref() {
        None => ReplayMode::default(),
        Some(word) => word.parse().map_err(|_| {
            let words = ReplayMode::VARIANTS.join(", ");
            Problem::new(Code::InvalidBody, format!("mode is one of {words}"))
        })?,
    };
    let answer = replay_run(&context, mode).await?;
    Ok(json_value(StatusCode::OK, &answer))
}

/// Replays the run in the path.
pub(in crate::http) async fn replay_run(
    context: &GovernanceContext,
    mode: ReplayMode,
) -> Result<Value, Problem> {
    let run_id = runs::visible_run(context).await?;
    let server = context.server.id.as_str();
    if !(context.app.core.policy).may_call(&context.identity, server, Repeater::TOOL) {
        let tool = Repeater::TOOL;
        let needed =
            format!("a replay runs code: it needs a rule of the server that lets you call {tool}");
        return Err(Problem::new(Code::Forbidden, needed));
    }
    let repeater = Repeater {
        server: Arc::clone(&context.server),
        upstreams: Arc::new(NestedServers::of_caller(
            &context.app.core,
            &context.identity,
        )),
    };
    let hooked = ask_before(context, &repeater, &run_id).await;
    context.audit("runs.replay", &hooked);
    let hooked = hooked?;
    let request = ReplayRequest {
        run_id,
        principal: context.identity.principal.clone(),
        teams: context.identity.teams.to_vec(),
        mode,
    };
    let replayed = tokio::spawn(for_same_user(async move { repeater.replay(request).await }));
    let replayed = match replayed.await {
        Ok(Ok(replayed)) => replayed,
        Ok(Err(error)) => {
            metrics::code_replayed(mode.into(), "refused");
            return Err(error.into());
        }
        Err(error) => {
            tracing::error!(%error, "a replay panicked");
            return Err(Problem::internal());
        }
    };
    let is_same = replayed.report.is_same();
    metrics::code_replayed(mode.into(), if is_same { "same" } else { "different" });
    Ok(json!({
        "replay": replayed.report.to_json(),
        "run": replayed.record.to_json(),
        "answer": ask_after(hooked, replayed.answer).await?,
    }))
}

/// Asks the hooks that decide about the call that is repeated; none where no hook does.
async fn ask_before(
    context: &GovernanceContext,
    repeater: &Repeater,
    run_id: &RunId,
) -> Result<Option<HookedCall>, Problem> {
    const CHANGED: &str = "a hook changed the arguments, and a replay repeats those of the record; call shell_exec instead";
    let (hooks, server) = (&context.app.core.hooks, context.server.id.as_str());
    if !hooks.are_asked_about(server, Repeater::TOOL) {
        return Ok(None);
    }
    let arguments = repeater.arguments(run_id).await?;
    let arguments = to_raw_value(&arguments).map_err(|_| Problem::internal())?;
    let route = CallRoute {
        caller: Arc::clone(&context.identity),
        session_digest: None,
        server: context.server.id.clone(),
    };
    let mut call = hooks.of_call(route, Repeater::TOOL, Some(arguments));
    if let Some(call) = &mut call {
        match call.before().await {
            Ok(None) => {}
            Ok(Some(_)) => return Err(Problem::new(Code::ReplayRefused, CHANGED)),
            Err(refusal) => return Err(refused(refusal, "nothing ran")),
        }
    }
    Ok(call)
}

/// The answer as the hooks let it through.
async fn ask_after(hooked: Option<HookedCall>, answer: Value) -> Result<Value, Problem> {
    let Some(call) = hooked else {
        return Ok(answer);
    };
    let result = json!({
        "content": [{"type": "text", "text": answer.to_string()}],
        "structuredContent": answer,
    });
    let result = to_raw_value(&result).map_err(|_| Problem::internal())?;
    match call.after(CallOutcome::Result(&result)).await {
        Ok(None) => Ok(answer),
        Ok(Some(changed)) => {
            let changed: Value =
                serde_json::from_str(changed.get()).map_err(|_| Problem::internal())?;
            let structured = changed.get("structuredContent").cloned();
            Ok(structured.unwrap_or(changed))
        }
        Err(refusal) => Err(refused(
            refusal,
            "the replay has run, and its answer is withheld",
        )),
    }
}

fn refused(refusal: HookRefusal, state: &str) -> Problem {
    match refusal {
        HookRefusal::Refused(reason) => {
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            let message = format!("a hook did not let the replay through; {state}{reason}");
            Problem::new(Code::Forbidden, message)
        }
        HookRefusal::NoAnswer => {
            let message = format!("a hook gave no valid answer; {state}");
            Problem::new(Code::Unavailable, message)
        }
    }
}
