//! Security events, newest first.

use std::collections::HashMap;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::blocking::blocking;
use super::context::GovernanceContext;
use crate::http::reply::json_value;
use crate::http::rest::{Problem, QueryParameter};
use mooring_code::records::{EventFilter, RecordsError, RunId, RunStatus};
use mooring_code::server::GovernedServer;

/// Default length of a list.
const USUAL: usize = 100;
/// Most events of one list.
const MOST: usize = 1_000;

/// The parameters of a list.
pub(super) const LIST_QUERY: [QueryParameter; 4] = [
    QueryParameter::new("limit", "at most this many, 1 to 1000; 100 by default"),
    QueryParameter::new("user", "events of this user"),
    QueryParameter::new("kind", "events of this kind"),
    QueryParameter::new("since", "events since then, in milliseconds since 1970"),
];

/// `GET /servers/{id}/code/security-events`
pub(super) async fn list(context: GovernanceContext) -> Result<Response, Problem> {
    let events = list_json(&context).await?;
    Ok(json_value(StatusCode::OK, &events))
}

/// The events that the query asks for.
pub(in crate::http) async fn list_json(context: &GovernanceContext) -> Result<Value, Problem> {
    let query = context.query(&LIST_QUERY)?;
    let filter = EventFilter {
        limit: query.limit(USUAL, MOST)?,
        kind: query.choice("kind")?,
        since_ms: query.read("since", "a number of milliseconds since 1970", |text| {
            text.parse().ok()
        })?,
        user: context.list_owner(query.text("user"))?,
    };
    let governed = context.governed()?;
    let events = blocking(move || with_status(&governed, &filter)).await?;
    Ok(json!({"events": events}))
}

/// The events, each with the current status of its run.
fn with_status(
    governed: &GovernedServer,
    filter: &EventFilter,
) -> Result<Vec<Value>, RecordsError> {
    let mut known: HashMap<String, Option<RunStatus>> = HashMap::new();
    let events = governed.records.events(&governed.server, filter)?;
    let with_status = events.into_iter().map(|event| {
        let status = event.run_id.as_ref().and_then(|id| {
            *known
                .entry(id.clone())
                .or_insert_with(|| status(governed, id))
        });
        let mut json = event.to_json();
        if let Value::Object(fields) = &mut json {
            fields.insert("run_status".to_owned(), json!(status));
        }
        json
    });
    Ok(with_status.collect())
}

/// None if the run's record is already deleted.
fn status(governed: &GovernedServer, id: &str) -> Option<RunStatus> {
    let run = governed
        .records
        .run(&governed.server, &RunId::parse(id)?)
        .ok()?;
    Some(run.status())
}
