//! The code sessions of a server in the store: those of the whole fleet.

use axum::response::Response;
use http::StatusCode;
use mooring_session::names::Principal;
use mooring_session::record::SessionState;
use mooring_session::view::RecordView;
use serde_json::{Value, json};

use super::context::GovernanceContext;
use crate::http::reply::json_value;
use crate::http::rest::{Code, Problem, QueryParameter};
use mooring_code::place::CodePlace;
use mooring_store::rfc3339;
use mooring_store::{Family, SessionKey, SessionQuery};

/// Default length of a list.
const USUAL: usize = 50;
/// Most sessions of one list.
const MOST: usize = 500;
/// Most pages that are requested from the store for one list.
const PAGES_MAX: usize = 20;

/// The parameters of a list.
pub(super) const LIST_QUERY: [QueryParameter; 2] = [
    QueryParameter::new("limit", "at most this many, 1 to 500; 50 by default"),
    QueryParameter::new("user", "sessions of this user"),
];

/// `GET /servers/{id}/code/sessions`
pub(super) async fn list(context: GovernanceContext) -> Result<Response, Problem> {
    let query = context.query(&LIST_QUERY)?;
    let limit = query.limit(USUAL, MOST)?;
    let principal = context
        .list_owner(query.text("user"))?
        .map(|user| Principal::parse(user.as_bytes()))
        .transpose()
        .map_err(|error| Problem::new(Code::InvalidQuery, error.to_string()))?;
    let mut request = SessionQuery {
        family: Family::Code,
        principal,
        state: Some(SessionState::Active),
        id_pattern: Some(format!("{}:*", context.server.id).into()),
        count: limit,
        ..SessionQuery::default()
    };
    let store = context.app.core.session_router.store();
    let mut sessions = Vec::new();
    let mut is_complete = true;
    for _ in 0..PAGES_MAX {
        let page = store.list(&request).await?;
        is_complete &= page.complete;
        let found = page
            .sessions
            .iter()
            .map(|(key, record)| session(&context, key, record));
        sessions.extend(found);
        request.cursor = page.cursor;
        if request.cursor.is_none() || sessions.len() >= limit {
            break;
        }
    }
    sessions.truncate(limit);
    Ok(json_value(
        StatusCode::OK,
        &json!({"sessions": sessions, "complete": is_complete}),
    ))
}

fn session(context: &GovernanceContext, key: &SessionKey, record: &RecordView) -> Value {
    let place = CodePlace::of_key(key, &record.id, &record.principal);
    json!({
        "session_id": record.id.as_str(),
        "server_id": context.server.id.as_str(),
        "user_email": record.principal.as_str(),
        "language": place.map(|place| place.language().as_str()),
        "created_at": rfc3339(record.created_at.unix_ms()),
        "last_used_at": rfc3339(record.last_used_at.unix_ms()),
        "expires_at": rfc3339(record.expires_at.unix_ms()),
        "content_hash": record.content_hash.as_ref().map(|hash| hash.as_str().to_owned()),
    })
}
