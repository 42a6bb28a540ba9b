//! The frame of an operator's pages: who looks, where, and the navigation.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use mooring_store::StoreMode;

use super::context::PageContext;
use super::html::{document, html_reply, state, theme_switch, token_field};
use super::navigation::{NAVIGATION, NavigationItem};

/// A page of an operator.
pub(super) fn page(
    context: &PageContext,
    title: &str,
    active: Option<NavigationItem>,
    content: Markup,
) -> Response {
    page_with_status(context, StatusCode::OK, title, active, content)
}

/// The same with another status.
pub(super) fn page_with_status(
    context: &PageContext,
    status: StatusCode,
    title: &str,
    active: Option<NavigationItem>,
    content: Markup,
) -> Response {
    let items = NAVIGATION
        .iter()
        .filter(|item| item.rights.iter().any(|right| context.may(*right)));
    let items: Vec<NavigationItem> = items.copied().collect();
    let navigation = html! {
        nav #navigation aria-label="Pages" {
            ul {
                @for item in &items {
                    li {
                        a href=(item.path) aria-current=[(active == Some(*item)).then_some("page")]
                            data-key=(item.key) { (item.label) }
                    }
                }
            }
        }
    };
    let body = html! {
        a.skip href="#content" { "Skip to the content" }
        (header(context))
        div.columns {
            (navigation)
            main #content tabindex="-1" {
                h1 { (title) }
                (content)
            }
        }
        (shortcuts(&items))
    };
    html_reply(status, document(title, body))
}

fn header(context: &PageContext) -> Markup {
    let store = context.app.core.session_router.store();
    let worker = context.app.core.session_router.worker();
    html! {
        header.top {
            a.brand href="/ui" { "Mooring" }
            span.gateway title="The gateway that serves this page" { (worker.as_str()) }
            (state_of_store(store.status().mode))
            span.space {}
            span.user { (context.identity.principal.as_str()) }
            (theme_switch())
            button.plain type="button" data-opens="shortcuts" hidden { "Keys" kbd { "?" } }
            @if context.is_signed_in() {
                form method="post" action="/ui/sign-out" {
                    (token_field(&context.form_token()))
                    button.plain type="submit" { "Sign out" }
                }
            }
        }
    }
}

fn state_of_store(mode: StoreMode) -> Markup {
    match mode {
        StoreMode::Normal => html! {},
        StoreMode::Degraded => state("degraded", "store degraded"),
        StoreMode::Unavailable => state("unavailable", "store unavailable"),
    }
}

fn shortcuts(items: &[NavigationItem]) -> Markup {
    html! {
        dialog #shortcuts aria-labelledby="shortcuts-title" {
            h2 #shortcuts-title { "Keys" }
            dl.keys {
                @for item in items {
                    div { dt { kbd { "g" } " " kbd { (item.key) } } dd { (item.label) } }
                }
                div { dt { kbd { "/" } } dd { "Search" } }
                div { dt { kbd { "t" } } dd { "Light or dark" } }
                div { dt { kbd { "?" } } dd { "This list" } }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}
