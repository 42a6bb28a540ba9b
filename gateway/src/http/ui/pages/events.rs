//! Security events of code servers.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;
use strum::VariantNames as _;

use super::json::{items, moment, text};
use super::parts::{choice, chosen_server, code_servers, governed, sentence, server_choice};
use crate::http::governance::{RequestedItem, events};
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, Notice, nothing, state, table};
use crate::http::ui::layout;
use crate::http::ui::live;
use crate::http::ui::navigation::{EVENTS, RUNS};
use mooring_code::records::EventKind;

const TITLE: &str = "Security events";

/// The parameters of the list, as the REST interface has them.
const FILTERS: [&str; 2] = ["kind", "user"];

/// The events of a server, newest first, and new ones as they come.
pub(super) async fn list(context: PageContext) -> Result<Response, Response> {
    context.require_one(EVENTS.rights)?;
    let servers = code_servers(&context);
    let Some(server) = chosen_server(&context, &servers) else {
        let content = nothing("There is no server of kind code.");
        return Ok(layout::page(&context, TITLE, Some(EVENTS), content));
    };
    let filters = context.query();
    let filter = |name: &str| filters.get(name).map_or("", String::as_str);
    let live = format!(
        "/ui/events/live?server={server}&{}",
        context.query_of(&FILTERS)
    );
    let content = html! {
        form.filters method="get" action=(EVENTS.path) {
            (server_choice(&servers, &server))
            (choice("Kind", "kind", "all", EventKind::VARIANTS, filter("kind")))
            label { "User" input type="search" name="user" value=(filter("user")) data-search; }
            button type="submit" { "Show" }
        }
        section hx-sse:connect=(live) hx-swap="innerMorph" {
            @match events_of(&context, &server).await {
                Ok(found) => (list_of(&server, &found)),
                Err(problem) => (page_html::notice(&Notice::problem(sentence(problem.message())))),
            }
        }
    };
    Ok(layout::page(&context, TITLE, Some(EVENTS), content))
}

/// The same list whenever it has changed.
pub(super) async fn live(context: PageContext) -> Result<Response, Response> {
    context.require_one(EVENTS.rights)?;
    let server = context.query().remove("server").unwrap_or_default();
    Ok(live::stream(context, move |context| {
        let server = server.clone();
        async move {
            let found = events_of(&context, &server).await.ok()?;
            Some(list_of(&server, &found))
        }
    }))
}

async fn events_of(context: &PageContext, server: &str) -> Result<Value, Problem> {
    let query = context.query_of(&FILTERS);
    let item = RequestedItem {
        server,
        query: Some(&query),
        ..RequestedItem::default()
    };
    events::list_json(&governed(context, item)?).await
}

fn list_of(server: &str, found: &Value) -> Markup {
    let rows = html! {
        @for event in items(found, "events") {
            @let run = text(event, "run_id");
            tr {
                td { (moment(event, "created_at")) }
                td { (state("", &text(event, "kind").replace('_', " "))) }
                td { (text(event, "user_email")) }
                td { (text(event, "message")) }
                td { code { (text(event, "tool")) } }
                td { @if !run.is_empty() { a href=(format!("{}/{server}/{run}", RUNS.path)) { "run" } } }
            }
        }
    };
    html! {
        @if items(found, "events").is_empty() { (nothing("No events.")) } @else {
            (table("Security events", &["Time", "Kind", "User", "Event", "Tool", "Run"], rows))
        }
    }
}
