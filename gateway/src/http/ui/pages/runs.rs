//! Runs of code: the list, one run with its code, output and calls, and its replay.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;
use strum::VariantNames as _;

use super::json::{is_true, items, moment, pretty, text};
use super::parts::{
    act, choice, chosen_server, code_servers, governed, problem_page, sentence, server_choice,
};
use crate::http::governance::{RequestedItem, replay as replaying, runs};
use crate::http::ui::context::{PageContext, PostedForm};
use crate::http::ui::html::{self as page_html, Notice, nothing, state, table};
use crate::http::ui::layout;
use crate::http::ui::navigation::RUNS;
use mooring_code::records::RunStatus;
use mooring_code::replay::ReplayMode;

/// The parameters of the list, as the REST interface has them.
const FILTERS: [&str; 3] = ["status", "user", "before"];

/// The runs of a server.
pub(super) async fn list(context: PageContext) -> Result<Response, Response> {
    context.require_one(RUNS.rights)?;
    let servers = code_servers(&context);
    let Some(server) = chosen_server(&context, &servers) else {
        let content = nothing("There is no server of kind code.");
        return Ok(layout::page(&context, "Runs", Some(RUNS), content));
    };
    let query = context.query_of(&FILTERS);
    let item = RequestedItem {
        server: &server,
        query: Some(&query),
        ..RequestedItem::default()
    };
    let found = match governed(&context, item) {
        Ok(governed) => runs::list_json(&governed).await,
        Err(problem) => Err(problem),
    };
    let filters = context.query();
    let filter = |name: &str| filters.get(name).map_or("", String::as_str);
    let filter_form = html! {
        form.filters method="get" action=(RUNS.path) {
            (server_choice(&servers, &server))
            (choice("Status", "status", "all", RunStatus::VARIANTS, filter("status")))
            label { "User" input type="search" name="user" value=(filter("user")) data-search; }
            button type="submit" { "Show" }
        }
    };
    let content = match found {
        Ok(found) => html! { (filter_form) (list_of(&context, &server, &found)) },
        Err(problem) => html! {
            (filter_form)
            (page_html::notice(&Notice::problem(sentence(problem.message()))))
        },
    };
    Ok(layout::page(&context, "Runs", Some(RUNS), content))
}

fn list_of(context: &PageContext, server: &str, found: &Value) -> Markup {
    let next = text(found, "next_before");
    let query = context.query_of(&["status", "user"]);
    let rows = html! {
        @for run in items(found, "runs") {
            @let id = text(run, "id");
            @let status = text(run, "status");
            tr {
                td { (moment(run, "started_at")) }
                td { a href=(path_of(server, &id)) { code { (id) } } }
                td { (text(run, "user_email")) }
                td { (text(run, "runtime")) }
                td { (state(&status, &status.replace('_', " "))) }
                td.number { (text(run, "tool_calls_total")) }
                td.number { (text(run, "security_events_total")) }
            }
        }
    };
    html! {
        @if items(found, "runs").is_empty() { (nothing("No runs.")) } @else {
            (table("Runs", &["Started", "Run", "User", "Runtime", "Status", "#Calls", "#Events"], rows))
        }
        @if !next.is_empty() {
            p { a href=(format!("{}?server={server}&{query}&before={next}", RUNS.path)) { "Older runs" } }
        }
    }
}

fn path_of(server: &str, run: &str) -> String {
    format!("{}/{server}/{run}", RUNS.path)
}

/// One run.
pub(super) async fn show(
    context: PageContext,
    Path((server, run_id)): Path<(String, String)>,
) -> Result<Response, Response> {
    context.require_one(RUNS.rights)?;
    let item = RequestedItem {
        server: &server,
        named: Some(&run_id),
        query: None,
    };
    let found = match governed(&context, item) {
        Ok(governed) => runs::run_json(&governed).await,
        Err(problem) => Err(problem),
    };
    Ok(match found {
        Ok(run) => layout::page(
            &context,
            "Run",
            Some(RUNS),
            run_content(&context, &server, &run),
        ),
        Err(problem) => problem_page(&context, "Run", RUNS, &problem),
    })
}

fn run_content(context: &PageContext, server: &str, run: &Value) -> Markup {
    let id = text(run, "id");
    let status = text(run, "status");
    let replayed_from = text(run, "replayed_from_run_id");
    let duration = run.pointer("/metrics/duration_ms").map(Value::to_string);
    html! {
        dl.facts {
            div { dt { "Run" } dd { code { (id) } } }
            div { dt { "Status" } dd { (state(&status, &status.replace('_', " "))) } }
            div { dt { "User" } dd { (text(run, "user_email")) } }
            div { dt { "Started" } dd { (moment(run, "started_at")) } }
            div { dt { "Ended" } dd { (moment(run, "finished_at")) } }
            @if let Some(duration) = duration { div { dt { "Duration" } dd { (duration) " ms" } } }
            div { dt { "Language, runtime" } dd { (text(run, "language")) ", " (text(run, "runtime")) } }
            div { dt { "Gateway" } dd { (text(run, "worker")) } }
            @if !replayed_from.is_empty() {
                div { dt { "Replay of" } dd { a href=(path_of(server, &replayed_from)) { code { (replayed_from) } } } }
            }
        }
        (replay_form(context, server, &id))
        (block("Code", &text(run, "code_body")))
        (block("Output", &text(run, "output")))
        (block("Error", &text(run, "error")))
        (calls(run))
        (events(run))
    }
}

fn replay_form(context: &PageContext, server: &str, id: &str) -> Markup {
    let fields = html! {
        fieldset {
            legend { "Calls of tools" }
            label { input type="radio" name="mode" value=(mode_word(ReplayMode::Recorded)) checked; "answered from the record" }
            label { input type="radio" name="mode" value=(mode_word(ReplayMode::Live)); "made again" }
        }
    };
    let what = "The code runs once more, in your own code session and with your own rights. The result is compared with the record.";
    act(
        context,
        &format!("{}/replay", path_of(server, id)),
        "Replay",
        what,
        fields,
    )
}

fn mode_word(mode: ReplayMode) -> &'static str {
    mode.into()
}

/// A long text; nothing where there is none.
fn block(title: &str, content: &str) -> Markup {
    html! {
        @if !content.is_empty() {
            section {
                h2 { (title) }
                pre tabindex="0" aria-label=(title) { (content) }
            }
        }
    }
}

fn calls(run: &Value) -> Markup {
    html! {
        @if !items(run, "tool_calls").is_empty() {
            section {
                h2 { "Calls" }
                @if !is_true(run, "tool_calls_complete") { p { "Not all calls were recorded." } }
                @for call in items(run, "tool_calls") {
                    @let outcome = text(call, "outcome");
                    details {
                        summary {
                            (text(call, "seq")) ". " code { (text(call, "server")) "/" (text(call, "tool")) } " "
                            (state(if outcome == "answered" { "ok" } else { "failed" }, &outcome))
                            " " (text(call, "latency_ms")) " ms"
                        }
                        (block("Arguments", &shown(call, "arguments")))
                        (block("Result", &shown(call, "result")))
                        (block("Error", &shown(call, "error")))
                    }
                }
            }
        }
    }
}

fn events(run: &Value) -> Markup {
    html! {
        @if !items(run, "security_events").is_empty() {
            section {
                h2 { "Security events" }
                ul { @for event in items(run, "security_events") {
                    li { strong { (text(event, "kind").replace('_', " ")) } ": " (text(event, "message")) }
                } }
            }
        }
    }
}

fn shown(of: &Value, field: &str) -> String {
    match of.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(value) => pretty(value),
    }
}

/// Replays a run, and shows how the result compares.
pub(super) async fn replay(
    Path((server, run_id)): Path<(String, String)>,
    form: PostedForm,
) -> Result<Response, Response> {
    let context = &form.context;
    context.require_one(RUNS.rights)?;
    let item = RequestedItem {
        server: &server,
        named: Some(&run_id),
        query: None,
    };
    let mode = form.text("mode").parse().unwrap_or_default();
    let replayed = match governed(context, item) {
        Ok(governed) => replaying::replay_run(&governed, mode).await,
        Err(problem) => Err(problem),
    };
    Ok(match replayed {
        Ok(replayed) => layout::page(
            context,
            "Replay",
            Some(RUNS),
            replay_content(&server, &run_id, &replayed),
        ),
        Err(problem) => problem_page(context, "Replay", RUNS, &problem),
    })
}

fn replay_content(server: &str, run_id: &str, replayed: &Value) -> Markup {
    let report = replayed.get("replay").unwrap_or(&Value::Null);
    let new_run = replayed
        .get("run")
        .map(|run| text(run, "id"))
        .unwrap_or_default();
    let notice = match is_true(report, "same") {
        true => Notice::done("The replay is the same as what was recorded."),
        false => Notice::problem("The replay differs from what was recorded."),
    };
    let same = |field: &str| {
        if is_true(report, field) {
            "same"
        } else {
            "different"
        }
    };
    html! {
        (page_html::notice(&notice))
        dl.facts {
            div { dt { "Recorded run" } dd { a href=(path_of(server, run_id)) { code { (run_id) } } } }
            div { dt { "New run" } dd { a href=(path_of(server, &new_run)) { code { (new_run) } } } }
            div { dt { "Status" } dd { (text(report, "recorded_status")) ", now " (text(report, "status")) } }
            div { dt { "Output" } dd { (same("same_output")) } }
            div { dt { "Error" } dd { (same("same_error")) } }
            div { dt { "Divergent calls" } dd { (text(report, "divergences_total")) } }
        }
        @if !items(report, "divergences").is_empty() {
            (block("Divergences", &shown(report, "divergences")))
        }
    }
}
