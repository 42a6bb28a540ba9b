//! What the pages about code servers share: the choice of the server, filters, problems and acts.

use axum::response::Response;
use maud::{Markup, html};

use crate::http::governance::{GovernanceContext, RequestedItem};
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, Notice, token_field};
use crate::http::ui::layout;
use crate::http::ui::navigation::NavigationItem;
use mooring_admin::OperatorError;

/// The code servers that the operator may see.
pub(super) fn code_servers(context: &PageContext) -> Vec<&str> {
    let servers = context
        .app
        .directory
        .code
        .iter()
        .flat_map(|code| code.iter());
    let ids = servers.map(|server| server.id.as_str());
    ids.filter(|id| {
        governed(
            context,
            RequestedItem {
                server: id,
                ..RequestedItem::default()
            },
        )
        .is_ok()
    })
    .collect()
}

/// The request as the functions of the REST interface take it.
pub(super) fn governed(
    context: &PageContext,
    item: RequestedItem<'_>,
) -> Result<GovernanceContext, Problem> {
    GovernanceContext::of_item(&context.app, context.operator_identity(), item)
}

/// The server that the query names, or the first one.
pub(super) fn chosen_server(context: &PageContext, servers: &[&str]) -> Option<String> {
    let named = context.query().remove("server");
    named.or_else(|| Some((*servers.first()?).to_owned()))
}

/// The page of a request that was refused.
pub(super) fn problem_page(
    context: &PageContext,
    title: &str,
    active: NavigationItem,
    problem: &Problem,
) -> Response {
    let notice = Notice::problem(sentence(problem.message()));
    let content = page_html::notice(&notice);
    layout::page_with_status(context, problem.status(), title, Some(active), content)
}

/// The content, or why there is none.
pub(super) fn content_or_problem(content: Result<Markup, OperatorError>) -> Markup {
    content
        .unwrap_or_else(|error| page_html::notice(&Notice::problem(sentence(&error.to_string()))))
}

/// A live page of the navigation: a stream at its path with `/live` sends the content whenever it has changed.
pub(super) fn live_page(
    context: &PageContext,
    item: NavigationItem,
    content: Result<Markup, OperatorError>,
) -> Response {
    match content {
        Ok(content) => {
            let live = html! {
                section hx-sse:connect=(format!("{}/live", item.path)) hx-swap="innerMorph" { (content) }
            };
            layout::page(context, item.label, Some(item), live)
        }
        Err(error) => problem_page(context, item.label, item, &Problem::from(error)),
    }
}

/// The gateways whose figures are missing, each with the reason.
pub(super) fn missing_gateways<'a>(missing: impl Iterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        @for (worker, problem) in missing {
            (page_html::notice(&Notice::problem(format!("Without the figures of {worker}: {problem}"))))
        }
    }
}

/// A message as a sentence.
pub(super) fn sentence(message: &str) -> String {
    let mut characters = message.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    let end = if message.ends_with('.') { "" } else { "." };
    format!("{}{}{end}", first.unwrap_or_default(), characters.as_str())
}

/// A choice of a filter; `unset` says what is shown where nothing is chosen.
pub(super) fn choice(label: &str, name: &str, unset: &str, words: &[&str], chosen: &str) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { (unset) }
                @for word in words {
                    option value=(word) selected[*word == chosen] { (word.replace('_', " ")) }
                }
            }
        }
    }
}

/// The choice of the server, where there are several.
pub(super) fn server_choice(servers: &[&str], chosen: &str) -> Markup {
    html! {
        @if servers.len() > 1 {
            label {
                "Server"
                select name="server" {
                    @for server in servers {
                        option value=(server) selected[*server == chosen] { (server) }
                    }
                }
            }
        } @else {
            input type="hidden" name="server" value=(chosen);
        }
    }
}

/// An act: what it would do, and behind that the button which does it. `fields` are further parts of the form.
pub(super) fn act(
    context: &PageContext,
    path: &str,
    label: &str,
    what_it_does: &str,
    fields: Markup,
) -> Markup {
    html! {
        details.act {
            summary { (label) " …" }
            form.stacked method="post" action=(path) {
                (token_field(&context.form_token()))
                p { (what_it_does) }
                (fields)
                button type="submit" { (label) }
            }
        }
    }
}
