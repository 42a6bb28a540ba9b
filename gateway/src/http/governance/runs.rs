//! Runs: listed, newest first, and shown.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::problem::Problem;
use super::visitor::Visitor;
use super::{blocking, json};
use mooring_code::records::{RunFilter, RunId, RunRecord, RunStatus};

/// How many runs a list has unless it is asked for more.
const USUAL: usize = 50;
/// Most runs of one list.
const MOST: usize = 500;

/// `GET /servers/{id}/code/runs`
pub(super) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    let query = visitor.query(&["limit", "status", "user", "before"])?;
    let words = RunStatus::ALL.map(RunStatus::as_str).join(", ");
    let filter = RunFilter {
        limit: query.limit(USUAL, MOST)?,
        status: query.read("status", &format!("one of {words}"), RunStatus::parse)?,
        before: query.read("before", "the id of a run", RunId::parse)?,
        user: visitor.whose(query.text("user"))?,
    };
    let governed = visitor.governed()?;
    let limit = filter.limit;
    let runs = blocking(move || governed.records.runs(&governed.server, &filter)).await?;
    let next = runs
        .last()
        .filter(|_| runs.len() >= limit)
        .map(|run| run.begun.id.clone());
    let runs: Vec<Value> = runs.iter().map(RunRecord::to_json).collect();
    Ok(json(
        StatusCode::OK,
        &json!({"runs": runs, "next_before": next}),
    ))
}

/// `GET /servers/{id}/code/runs/{run}`
pub(super) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    visitor.query(&[])?;
    let id = seen(&visitor).await?;
    let governed = visitor.governed()?;
    let run = blocking(move || governed.records.whole_run(&governed.server, &id)).await?;
    Ok(json(StatusCode::OK, &run.to_json()))
}

/// The run that the path names, where the principal may see it.
pub(super) async fn seen(visitor: &Visitor) -> Result<RunId, Problem> {
    let id = RunId::parse(visitor.named()).ok_or_else(Problem::no_run)?;
    let governed = visitor.governed()?;
    let asked = id.clone();
    let run = blocking(move || governed.records.run(&governed.server, &asked)).await?;
    if visitor.sees_of(&run.begun.user_email) {
        Ok(id)
    } else {
        Err(Problem::no_run())
    }
}
