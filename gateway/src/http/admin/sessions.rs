//! Listing, showing and ending sessions.

use axum::extract::Request;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;

use super::context::AdminContext;
use crate::http::rest::{ActHints, Code, Problem, Query, QueryParameter, RestRoute};
use mooring_admin::sessions::{
    SessionCursor, SessionDetail, SessionList, SessionListRequest, SessionSearch,
};
use mooring_admin::{ActReply, SessionHistory, SessionMove, SessionWaits};
use mooring_settings::Right;
use mooring_store::Order;

/// Default length of a list.
const USUAL: usize = 50;
/// Most sessions of one list.
const MOST: usize = 500;

const LIST_QUERY: [QueryParameter; 12] = [
    QueryParameter::new("user", "sessions of this user: the whole name"),
    QueryParameter::new("server", "sessions at this server"),
    QueryParameter::new("instance", "sessions bound to this instance"),
    QueryParameter::new("owner", "sessions with a connection that this gateway owns"),
    QueryParameter::new(
        "state",
        "`active` (the default), `expired`, `ended` or `any`",
    ),
    QueryParameter::new("kind", "`mcp`, `code` or `agent`"),
    QueryParameter::new("label", "sessions with this label: `name` or `name=value`"),
    QueryParameter::new("epoch", "sessions with a binding of at least this epoch"),
    QueryParameter::new(
        "text",
        "words to find in the names of a session (user, servers, instances, gateways, place), in its states or at the \
         beginning of its digest; `user:`, `server:`, `instance:`, `owner:`, `state:`, `kind:`, \
         `label:` and `epoch:` before a word set the parameter of that name",
    ),
    QueryParameter::new(
        "order",
        "`newest` (the default) or `oldest` first, within a kind",
    ),
    QueryParameter::new("limit", "at most this many, 1 to 500; 50 by default"),
    QueryParameter::new("cursor", "the `next_cursor` of the page before"),
];

/// Ends one session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndBody {
    /// Only say what would happen.
    #[serde(default)]
    preview: bool,
}

/// Moves a session to another instance of a server.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MoveBody {
    /// The server; needed where the session is bound at several.
    server: Option<String>,
    /// The instance to move to; another one that is not parked without it.
    to: Option<String>,
    /// Do not wait for a call that runs, which may be cut off.
    #[serde(default)]
    force: bool,
    /// Only say what would happen.
    #[serde(default)]
    preview: bool,
}

/// Ends the sessions that match, some at a time: to be repeated while `is_left`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndAllBody {
    /// Which active sessions; at least one field.
    filter: SessionSearch,
    /// Only say what would happen.
    #[serde(default)]
    preview: bool,
}

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get("/admin/sessions", "Lists sessions, page by page", list)
            .needs(Right::SessionsRead)
            .query(&LIST_QUERY)
            .reading_tool("sessions_list")
.replies::<SessionList>(),
        RestRoute::get(
            "/admin/sessions/{session}",
            "Shows a session, named by its digest, the first digits of it, or its place",
            show,
        )
        .needs(Right::SessionsRead)
        .reading_tool("sessions_show")
.replies::<SessionDetail>(),
        RestRoute::get(
            "/admin/sessions/{session}/history",
            "Shows what has happened to a session",
            history,
        )
        .needs(Right::SessionsRead)
        .reading_tool("sessions_history")
.replies::<SessionHistory>(),
        RestRoute::get(
            "/admin/sessions/{session}/waits",
            "Says what calls of a session wait for",
            waits,
        )
        .needs(Right::SessionsRead)
        .reading_tool("sessions_waits")
.replies::<SessionWaits>(),
        RestRoute::post("/admin/sessions/{session}/end", "Ends a session", end)
            .needs(Right::SessionsManage)
            .body::<EndBody>()
            .acting_tool("sessions_end", ActHints::DESTRUCTIVE)
.replies::<ActReply>(),
        RestRoute::post(
            "/admin/sessions/{session}/move",
            "Moves a session to another instance of a server, between two calls",
            move_session,
        )
        .needs(Right::SessionsManage)
        .body::<MoveBody>()
        .acting_tool("sessions_move", ActHints { is_idempotent: false, ..ActHints::DESTRUCTIVE })
.replies::<ActReply>(),
        RestRoute::post(
            "/admin/sessions/end",
            "Ends the active sessions that match a filter, some at a time: it is repeated while `is_left`",
            end_all,
        )
        .needs(Right::SessionsManage)
        .body::<EndAllBody>()
        .acting_tool("sessions_end_matching", ActHints::DESTRUCTIVE)
.replies::<ActReply>(),
    ]
}

async fn list(context: AdminContext) -> Result<Response, Problem> {
    let query = context.query(&LIST_QUERY)?;
    let cursor = "the next_cursor of the page before, with the same parameters";
    let order = |word: &str| match word {
        "newest" => Some(Order::Newest),
        "oldest" => Some(Order::Oldest),
        _ => None,
    };
    let request = SessionListRequest {
        filter: search(&query).filter()?,
        order: query
            .read("order", "newest or oldest", order)?
            .unwrap_or(Order::Newest),
        limit: query.limit(USUAL, MOST)?,
        cursor: query.read("cursor", cursor, SessionCursor::parse)?,
    };
    let list = context.operator.sessions(&context.identity, &request);
    Ok(context.reply(&list.await?))
}

fn search(query: &Query) -> SessionSearch {
    let field = |name: &str| query.text(name).map(str::to_owned);
    SessionSearch {
        user: field("user"),
        server: field("server"),
        instance: field("instance"),
        owner: field("owner"),
        state: field("state"),
        kind: field("kind"),
        label: field("label"),
        epoch: field("epoch"),
        text: field("text"),
    }
}

async fn show(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let detail = context
        .operator
        .session(&context.identity, context.path_part(0));
    Ok(context.reply(&detail.await?))
}

async fn history(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let (operator, named) = (&context.operator, context.path_part(0));
    let history = operator.session_history(&context.identity, named).await?;
    Ok(context.reply(&history))
}

async fn waits(context: AdminContext) -> Result<Response, Problem> {
    context.query(&[])?;
    let (operator, named) = (&context.operator, context.path_part(0));
    let waits = operator.session_waits(&context.identity, named).await?;
    Ok(context.reply(&waits))
}

async fn end(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let EndBody { preview } = context.body(request).await?;
    let (operator, identity, named) = (&context.operator, &context.identity, context.path_part(0));
    let reply = match preview {
        true => ActReply::Preview(operator.preview_end(identity, named).await?),
        false => ActReply::Progress(operator.end_session(identity, named).await?),
    };
    Ok(context.reply(&reply))
}

async fn move_session(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let body: MoveBody = context.body(request).await?;
    let (operator, identity) = (&context.operator, &context.identity);
    let request = SessionMove {
        session: context.path_part(0),
        server: body.server.as_deref(),
        to: body.to.as_deref(),
        is_forced: body.force,
    };
    let reply = match body.preview {
        true => ActReply::Preview(operator.preview_move(identity, request).await?),
        false => ActReply::Progress(operator.move_session(identity, request).await?),
    };
    Ok(context.reply(&reply))
}

async fn end_all(context: AdminContext, request: Request) -> Result<Response, Problem> {
    let EndAllBody { filter, preview } = context.body(request).await?;
    if filter.filter()?.is_too_wide_to_end() {
        let message = "filter needs a field beside state and epoch, and selects active sessions only: ending every session is \
                       not meant";
        return Err(Problem::new(Code::InvalidBody, message));
    }
    let (operator, identity) = (&context.operator, &context.identity);
    let reply = match preview {
        true => ActReply::Preview(
            operator
                .preview_end_all(identity, &filter.filter()?)
                .await?,
        ),
        false => ActReply::Progress(operator.end_sessions(identity, &filter).await?),
    };
    Ok(context.reply(&reply))
}
