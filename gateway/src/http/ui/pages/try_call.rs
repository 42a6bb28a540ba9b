//! Trying a call: the tools of a server with their schemas, a call of one, and what was on the wire.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::json::{items, pretty, text};
use super::wire::{WireExchange, WireSession};
use crate::http::caller::RequestSender;
use crate::http::ui::context::{PageContext, PostedForm};
use crate::http::ui::html::{self as page_html, Notice, nothing, token_field};
use crate::http::ui::layout;
use crate::http::ui::navigation::TRY_CALL;
use mooring_identity::Peer;

/// Most pages of a list of tools.
const PAGES_MAX: usize = 10;

/// What the form has.
#[derive(Default)]
struct CallForm {
    server: String,
    tool: String,
    arguments: String,
}

/// What came of it.
enum CallOutcome {
    /// The tools of the server.
    Tools(Vec<Value>),
    /// The exchange that failed before there were any.
    Failed(Box<WireExchange>),
}

/// The choice of the server and its tool.
pub(super) async fn show(
    Extension(sender): Extension<Arc<RequestSender>>,
    context: PageContext,
) -> Response {
    let mut query = context.query();
    let mut take = |name: &str| query.remove(name).unwrap_or_default();
    let form = CallForm {
        server: take("server"),
        tool: take("tool"),
        arguments: String::new(),
    };
    let content = content_of(&context, &sender.peer, &form, None).await;
    layout::page(&context, "Try a call", Some(TRY_CALL), content)
}

/// Makes the call.
pub(super) async fn call(
    Extension(sender): Extension<Arc<RequestSender>>,
    form: PostedForm,
) -> Response {
    let context = &form.context;
    let form = CallForm {
        server: form.text("server").to_owned(),
        tool: form.text("tool").to_owned(),
        arguments: form.text("arguments").to_owned(),
    };
    let result = call_content(context, &sender.peer, &form).await;
    let content = content_of(context, &sender.peer, &form, Some(result)).await;
    layout::page(context, "Try a call", Some(TRY_CALL), content)
}

async fn call_content(context: &PageContext, peer: &Peer, form: &CallForm) -> Markup {
    let arguments = match form.arguments.trim() {
        "" => Ok(Value::Object(Map::new())),
        text => serde_json::from_str::<Value>(text),
    };
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => {
            let text = format!("Nothing was sent: the arguments are no JSON: {error}.");
            return page_html::notice(&Notice::problem(text));
        }
    };
    let session = WireSession::open(&context.app, &context.identity, peer, &form.server).await;
    let exchange = match session {
        Ok(session) => {
            let params = json!({"name": form.tool, "arguments": arguments});
            let exchange = session.request("tools/call", &params).await;
            session.close().await;
            exchange
        }
        Err(exchange) => exchange,
    };
    let is_error = exchange
        .result()
        .is_none_or(|result| result.get("isError") == Some(&Value::Bool(true)));
    let notice = match is_error {
        false => Notice::done("The tool has answered."),
        true => Notice::problem("The call has failed, or its tool has answered with an error."),
    };
    html! {
        section #result {
            (page_html::notice(&notice))
            (wire(&exchange))
        }
    }
}

fn wire(exchange: &WireExchange) -> Markup {
    html! {
        h2 { "Request" }
        pre tabindex="0" aria-label="Request" { (exchange.request) }
        h2 { "Reply" }
        pre tabindex="0" aria-label="Reply" { (exchange.reply) }
    }
}

async fn content_of(
    context: &PageContext,
    peer: &Peer,
    form: &CallForm,
    result: Option<Markup>,
) -> Markup {
    let servers = context.app.directory.usable_server_ids(&context.identity);
    if servers.is_empty() {
        return nothing("You may use no server.");
    }
    let choice = html! {
        form.filters method="get" action=(TRY_CALL.path) {
            label {
                "Server"
                select name="server" {
                    @for server in &servers { option value=(server) selected[*server == form.server] { (server) } }
                }
            }
            button type="submit" { "List its tools" }
        }
        p.help { "Calls are made as you: with your rights, in a session of their own, which ends with the call." }
    };
    if form.server.is_empty() {
        return choice;
    }
    let below = match list_tools(context, peer, &form.server).await {
        CallOutcome::Tools(tools) => tools_content(context, form, &tools),
        CallOutcome::Failed(exchange) => html! {
            (page_html::notice(&Notice::problem("The server has not listed its tools.")))
            (wire(&exchange))
        },
    };
    html! {
        (choice)
        @if let Some(result) = result { (result) }
        (below)
    }
}

async fn list_tools(context: &PageContext, peer: &Peer, server: &str) -> CallOutcome {
    let opened = WireSession::open(&context.app, &context.identity, peer, server).await;
    let session = match opened {
        Ok(session) => session,
        Err(exchange) => return CallOutcome::Failed(Box::new(exchange)),
    };
    let mut tools = Vec::new();
    let mut params = json!({});
    let mut failed = None;
    for _ in 0..PAGES_MAX {
        let exchange = session.request("tools/list", &params).await;
        let Some(result) = exchange.result() else {
            failed = Some(exchange);
            break;
        };
        tools.extend_from_slice(items(result, "tools"));
        match result.get("nextCursor") {
            Some(Value::String(cursor)) => params = json!({"cursor": cursor}),
            _ => break,
        }
    }
    session.close().await;
    match failed {
        Some(exchange) if tools.is_empty() => CallOutcome::Failed(Box::new(exchange)),
        _ => CallOutcome::Tools(tools),
    }
}

fn tools_content(context: &PageContext, form: &CallForm, tools: &[Value]) -> Markup {
    let chosen = tools.iter().find(|tool| text(tool, "name") == form.tool);
    html! {
        @if tools.is_empty() { (nothing("The server has no tools.")) } @else {
            form.filters method="get" action=(TRY_CALL.path) {
                input type="hidden" name="server" value=(form.server);
                label {
                    "Tool"
                    select name="tool" {
                        @for tool in tools {
                            @let name = text(tool, "name");
                            option value=(name) selected[name == form.tool] { (name) }
                        }
                    }
                }
                button type="submit" { "Show its schema" }
            }
        }
        @if let Some(tool) = chosen { (tool_content(context, form, tool)) }
    }
}

fn tool_content(context: &PageContext, form: &CallForm, tool: &Value) -> Markup {
    let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
    let arguments = match form.arguments.is_empty() {
        true => pretty(&example_of(schema)),
        false => form.arguments.clone(),
    };
    html! {
        section {
            h2 { code { (form.tool) } }
            p { (text(tool, "description")) }
            form.stacked method="post" action=(TRY_CALL.path) {
                (token_field(&context.form_token()))
                input type="hidden" name="server" value=(form.server);
                input type="hidden" name="tool" value=(form.tool);
                label for="arguments" { "Arguments (JSON)" }
                textarea #arguments name="arguments" rows="8" spellcheck="false" { (arguments) }
                button type="submit" { "Call" }
            }
            details {
                summary { "Input schema" }
                pre tabindex="0" aria-label="Input schema" { (pretty(schema)) }
            }
        }
    }
}

/// Arguments to begin with: the required ones of the schema, each with a value of its type.
fn example_of(schema: &Value) -> Value {
    let property = |name: &str| schema.get("properties")?.get(name);
    let example = |name: &str| match property(name) {
        Some(property) => value_of(property),
        None => Value::Null,
    };
    let required = items(schema, "required").iter().filter_map(Value::as_str);
    Value::Object(
        required
            .map(|name| (name.to_owned(), example(name)))
            .collect(),
    )
}

fn value_of(property: &Value) -> Value {
    if let Some(default) = property.get("default") {
        return default.clone();
    }
    if let Some(first) = items(property, "enum").first() {
        return first.clone();
    }
    match property.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => json!(0),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => json!({}),
        Some("string") => json!(""),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_begin_with_what_is_required() {
        let schema = json!({
            "properties": {
                "path": {"type": "string"}, "depth": {"type": "integer", "default": 2},
                "mode": {"enum": ["fast", "exact"]}, "other": {"type": "string"},
            },
            "required": ["path", "depth", "mode", "unknown"],
        });
        let expected = json!({"path": "", "depth": 2, "mode": "fast", "unknown": null});
        assert_eq!(example_of(&schema), expected);
        assert_eq!(example_of(&json!({})), json!({}));
    }
}
