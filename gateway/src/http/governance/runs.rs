//! Listing runs, newest first, and showing one.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::blocking::blocking;
use super::context::GovernanceContext;
use crate::http::reply::json_value;
use crate::http::rest::{Problem, QueryParameter};
use mooring_code::records::{RunFilter, RunId, RunRecord};

/// Default length of a list.
const USUAL: usize = 50;
/// Most runs of one list.
const MOST: usize = 500;

/// The parameters of a list.
pub(super) const LIST_QUERY: [QueryParameter; 4] = [
    QueryParameter::new("limit", "at most this many, 1 to 500; 50 by default"),
    QueryParameter::new("status", "runs with this status"),
    QueryParameter::new("user", "runs of this user"),
    QueryParameter::new(
        "before",
        "runs older than this one: the `next_before` of the page before",
    ),
];

/// `GET /servers/{id}/code/runs`
pub(super) async fn list(context: GovernanceContext) -> Result<Response, Problem> {
    let runs = list_json(&context).await?;
    Ok(json_value(StatusCode::OK, &runs))
}

/// The runs that the query asks for.
pub(in crate::http) async fn list_json(context: &GovernanceContext) -> Result<Value, Problem> {
    let query = context.query(&LIST_QUERY)?;
    let filter = RunFilter {
        limit: query.limit(USUAL, MOST)?,
        status: query.choice("status")?,
        before: query.read("before", "the id of a run", RunId::parse)?,
        user: context.list_owner(query.text("user"))?,
    };
    let governed = context.governed()?;
    let limit = filter.limit;
    let runs = blocking(move || governed.records.runs(&governed.server, &filter)).await?;
    let next = runs
        .last()
        .filter(|_| runs.len() >= limit)
        .map(|run| run.begun.id.clone());
    let runs: Vec<Value> = runs.iter().map(RunRecord::to_json).collect();
    Ok(json!({"runs": runs, "next_before": next}))
}

/// `GET /servers/{id}/code/runs/{run}`
pub(super) async fn show(context: GovernanceContext) -> Result<Response, Problem> {
    let run = run_json(&context).await?;
    Ok(json_value(StatusCode::OK, &run))
}

/// The run in the path, with its code, its output and its calls.
pub(in crate::http) async fn run_json(context: &GovernanceContext) -> Result<Value, Problem> {
    context.query(&[])?;
    let id = visible_run(context).await?;
    let governed = context.governed()?;
    let run = blocking(move || governed.records.whole_run(&governed.server, &id)).await?;
    Ok(run.to_json())
}

/// The run in the path, if the caller may see it.
pub(super) async fn visible_run(context: &GovernanceContext) -> Result<RunId, Problem> {
    let id = RunId::parse(context.path_id()).ok_or_else(Problem::no_run)?;
    let governed = context.governed()?;
    let run_id = id.clone();
    let run = blocking(move || governed.records.run(&governed.server, &run_id)).await?;
    if context.may_see_items_of(&run.begun.user_email) {
        Ok(id)
    } else {
        Err(Problem::no_run())
    }
}
