//! The code sessions of a server, as the store knows them: those of the whole fleet.

use axum::response::Response;
use http::StatusCode;
use mooring_session::names::Principal;
use mooring_session::record::Standing;
use mooring_session::view::RecordView;
use serde_json::{Value, json};

use super::json;
use super::problem::{Code, Problem};
use super::visitor::Visitor;
use mooring_code::place::CodePlace;
use mooring_code::volume::rfc3339;
use mooring_store::{Family, SessionKey, SessionQuery};

/// How many sessions a list has unless it is asked for more.
const USUAL: usize = 50;
/// Most sessions of one list.
const MOST: usize = 500;
/// Most pages that are asked of the store for one list.
const PAGES_MAX: usize = 20;

/// `GET /servers/{id}/code/sessions`
pub(super) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    let query = visitor.query(&["limit", "user"])?;
    let limit = query.limit(USUAL, MOST)?;
    let principal = visitor
        .whose(query.text("user"))?
        .map(|user| Principal::parse(user.as_bytes()))
        .transpose()
        .map_err(|error| Problem::new(Code::InvalidQuery, error.to_string()))?;
    let mut asked = SessionQuery {
        family: Family::Code,
        principal,
        standing: Some(Standing::Active),
        id_pattern: Some(format!("{}:*", visitor.server.id).into()),
        count: limit,
        ..SessionQuery::default()
    };
    let store = visitor.app.affinity.store();
    let mut sessions = Vec::new();
    let mut is_complete = true;
    for _ in 0..PAGES_MAX {
        let page = store.list(&asked).await?;
        is_complete &= page.complete;
        let found = page
            .sessions
            .iter()
            .map(|(key, record)| session(&visitor, key, record));
        sessions.extend(found);
        asked.cursor = page.cursor;
        if asked.cursor.is_none() || sessions.len() >= limit {
            break;
        }
    }
    sessions.truncate(limit);
    Ok(json(
        StatusCode::OK,
        &json!({"sessions": sessions, "complete": is_complete}),
    ))
}

fn session(visitor: &Visitor, key: &SessionKey, record: &RecordView) -> Value {
    let prefix = &visitor.app.affinity.options().key_prefix;
    let place = CodePlace::of_key(prefix, key.secret(), &record.id, &record.principal);
    json!({
        "session_id": record.id.as_str(),
        "server_id": visitor.server.id.as_str(),
        "user_email": record.principal.as_str(),
        "language": place.map(|place| place.language().as_str()),
        "created_at": rfc3339(record.created_at.unix_ms()),
        "last_used_at": rfc3339(record.last_used_at.unix_ms()),
        "expires_at": rfc3339(record.expires_at.unix_ms()),
        "content_hash": record.content_hash.as_ref().map(|hash| hash.as_str().to_owned()),
    })
}
