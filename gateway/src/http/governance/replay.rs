//! `POST .../replay {mode}`: replays a recorded run in the caller's session.
//!
//! Invariant: no code runs for a caller who may not run any at the server, and none that a hook would have to be asked
//! about.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use strum::VariantNames;

use super::context::GovernanceContext;
use super::problem::{Code, Problem};
use super::{body, json, runs};
use crate::http::nested_servers::NestedServers;
use mooring_code::replay::{ReplayMode, ReplayRequest};
use mooring_code::server::Repeater;
use mooring_metrics as metrics;
use mooring_usage::for_same_user;

/// The body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayBody {
    mode: Option<String>,
}

/// Replays the run. It is completed even if the caller disconnects.
pub(super) async fn replay(
    context: GovernanceContext,
    request: Request,
) -> Result<Response, Problem> {
    context.query(&[])?;
    let body: ReplayBody = body::read(&context.app, &context.identity, request).await?;
    let mode = match body.mode.as_deref() {
        None => ReplayMode::default(),
        Some(word) => word.parse().map_err(|_| {
            let words = ReplayMode::VARIANTS.join(", ");
            Problem::new(Code::InvalidBody, format!("mode is one of {words}"))
        })?,
    };
    let run_id = runs::visible_run(&context).await?;
    let server = context.server.id.as_str();
    if !(context.app.policy).may_call(&context.identity, server, Repeater::TOOL) {
        let tool = Repeater::TOOL;
        let needed =
            format!("a replay runs code: it needs a rule of the server that lets you call {tool}");
        return Err(Problem::new(Code::Forbidden, needed));
    }
    if context.app.hooks.are_asked_about(server, Repeater::TOOL) {
        let tool = Repeater::TOOL;
        let unasked = format!(
            "hooks decide about calls of {tool} at this server, and are not asked about a replay; call {tool} instead"
        );
        return Err(Problem::new(Code::Forbidden, unasked));
    }
    let request = ReplayRequest {
        run_id,
        principal: context.identity.principal.clone(),
        teams: context.identity.teams.to_vec(),
        mode,
    };
    let repeater = Repeater {
        server: Arc::clone(&context.server),
        upstreams: Arc::new(NestedServers::of_caller(&context.app, &context.identity)),
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
    let answer = json!({
        "replay": replayed.report.to_json(),
        "run": replayed.record.to_json(),
        "answer": replayed.answer,
    });
    Ok(json(StatusCode::OK, &answer))
}
