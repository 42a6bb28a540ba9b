//! Sessions: the search among all of them, page by page.

use axum::response::Response;
use maud::{Markup, html};
use url::form_urlencoded;

use super::parts::{choice, sentence};
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, Notice, moment, nothing, state, table};
use crate::http::ui::layout;
use crate::http::ui::navigation::SESSIONS;
use mooring_admin::SessionStatus;
use mooring_admin::sessions::{
    SessionCursor, SessionList, SessionListRequest, SessionSearch, SessionSummary,
};
use mooring_settings::Right;

/// Sessions on one page.
const PAGE: usize = 50;
/// The parameters of the search that the page passes on.
const FILTERS: [&str; 3] = ["text", "state", "kind"];
/// The states that can be chosen; `active` where none is.
const STATES: [&str; 3] = ["expired", "ended", "any"];
const KINDS: [&str; 3] = ["mcp", "code", "agent"];

/// The search, and what it has found.
pub(super) async fn list(context: PageContext) -> Result<Response, Response> {
    context.require_one(SESSIONS.rights)?;
    let search = search_of(&context);
    let field = |name| search.field(name).unwrap_or_default();
    let results = match find(&context, &search).await {
        Ok(list) => list_of(&context, &search, &list),
        Err(problem) => page_html::notice(&Notice::problem(sentence(problem.message()))),
    };
    let content = html! {
        // Found while somebody types; without scripts by the button.
        form.filters method="get" action=(SESSIONS.path) hx-get=(SESSIONS.path) hx-trigger="input delay:200ms, submit"
            hx-target="#results" hx-select="#results" hx-swap="outerHTML" role="search" {
            label.wide {
                "Search"
                input type="search" name="text" value=(field("text")) data-search autocomplete="off" spellcheck="false"
                    aria-describedby="search-help";
            }
            (choice("State", "state", "active", &STATES, field("state")))
            (choice("Kind", "kind", "all", &KINDS, field("kind")))
            button type="submit" { "Search" }
        }
        p.help #search-help {
            "Words to find in names and states, or the first digits of a session; and " code { "user:" } ", " code { "server:" } ", " code { "instance:" } ", " code { "owner:" } ", "
            code { "label:" } " or " code { "epoch:" } " before a word to compare one field."
        }
        div #results { (results) }
    };
    Ok(layout::page(&context, "Sessions", Some(SESSIONS), content))
}

/// What the query asks for.
pub(super) fn search_of(context: &PageContext) -> SessionSearch {
    let mut query = context.query();
    let mut take = |name: &str| query.remove(name);
    SessionSearch {
        text: take("text"),
        state: take("state"),
        kind: take("kind"),
        ..SessionSearch::default()
    }
}

async fn find(context: &PageContext, search: &SessionSearch) -> Result<SessionList, Problem> {
    let cursor = context.query().remove("cursor");
    let request = SessionListRequest {
        filter: search.filter()?,
        limit: PAGE,
        cursor: cursor.as_deref().and_then(SessionCursor::parse),
        ..SessionListRequest::default()
    };
    let operator = context.operator();
    let found = operator
        .sessions(&context.operator_identity(), &request)
        .await?;
    Ok(found)
}

fn list_of(context: &PageContext, search: &SessionSearch, list: &SessionList) -> Markup {
    let query = context.query_of(&FILTERS);
    html! {
        @if !list.complete { (page_html::notice(&Notice::problem("The store has not read all sessions yet: some may be missing."))) }
        @if list.sessions.is_empty() { (nothing("No session was found.")) } @else {
            (session_table(&list.sessions))
        }
        @if let Some(next) = &list.next_cursor {
            p { a href=(format!("{}?{query}&cursor={}", SESSIONS.path, encoded(next))) { "More sessions" } }
        }
        @if !search.is_empty() && !list.sessions.is_empty() && context.may(Right::SessionsManage) {
            p { a href=(format!("/ui/acts/end-matching?{query}")) { "End all that match" } }
        }
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Sessions as a table.
pub(super) fn session_table(sessions: &[SessionSummary]) -> Markup {
    let rows = html! {
        @for session in sessions {
            @let status: &'static str = session.state.into();
            tr {
                td { a href=(path_of(&session.session)) { code { (session.session) } } }
                td { (<&'static str>::from(session.kind)) }
                td { (session.principal) }
                td { @if session.state != SessionStatus::Active { (state(status, status)) } @else { (state("active", "active")) } }
                td { (session.servers.join(", ")) (session.place.as_deref().unwrap_or_default()) }
                td { (moment(&session.created_at)) }
                td { (moment(&session.last_used_at)) }
            }
        }
    };
    table(
        "Sessions",
        &[
            "Session",
            "Kind",
            "User",
            "State",
            "Servers",
            "Created",
            "Last used",
        ],
        rows,
    )
}

/// The page of a session, by its digest.
pub(super) fn path_of(digest: &str) -> String {
    format!("{}/{digest}", SESSIONS.path)
}
