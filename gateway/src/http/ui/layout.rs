//! What all pages look like: the frame, notices and small parts.

use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use maud::{DOCTYPE, Markup, html};
use mooring_settings::Right;
use mooring_store::StoreMode;

use super::assets::{self, AssetPaths};
use super::context::{PageContext, TOKEN_FIELD, location};

/// What htmx may do: it writes no style into the page, and keeps no copies of pages.
const HTMX_CONFIG: &str = r#"{"includeIndicatorCSS":false,"history":false,"prefix":""}"#;

/// A page in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NavigationItem {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
    /// The key that opens it, after `g`.
    pub(super) key: char,
    /// One of these rights is needed.
    pub(super) rights: &'static [Right],
}

/// How an act or a request ended, for the person.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    is_problem: bool,
    text: String,
}

impl Notice {
    pub(super) fn done(text: impl Into<String>) -> Self {
        Self {
            is_problem: false,
            text: text.into(),
        }
    }

    pub(super) fn problem(text: impl Into<String>) -> Self {
        Self {
            is_problem: true,
            text: text.into(),
        }
    }
}

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
    let items = super::pages::NAVIGATION
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
                    (token_field(context))
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

/// The switch of the theme, which the script shows.
fn theme_switch() -> Markup {
    html! {
        button.plain #theme type="button" aria-pressed="false" hidden { "Dark" }
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

/// A page for somebody who is not signed in, or where nothing can be shown.
pub(super) fn bare(status: StatusCode, title: &str, about: &Notice) -> Response {
    let content = html! {
        (notice(about))
        p { a href="/ui" { "To the start page" } }
    };
    bare_page(status, title, content)
}

/// A page without navigation.
pub(super) fn bare_page(status: StatusCode, title: &str, content: Markup) -> Response {
    let body = html! {
        header.top { a.brand href="/ui" { "Mooring" } span.space {} (theme_switch()) }
        main.bare #content tabindex="-1" { h1 { (title) } (content) }
    };
    html_reply(status, document(title, body))
}

/// A page that opens this one at once, as a request of its own.
pub(super) fn open_again(target: &str) -> Response {
    let AssetPaths { style, icon, .. } = assets::paths();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Mooring" }
                meta http-equiv="refresh" content=(format!("0;url={target}"));
                link rel="icon" href=(icon);
                link rel="stylesheet" href=(style);
            }
            body { main.bare { p { a href=(target) { "Continue" } } } }
        }
    };
    html_reply(StatusCode::OK, page)
}

fn document(title: &str, body: Markup) -> Markup {
    let AssetPaths {
        style,
        page_script,
        htmx,
        htmx_events,
        icon,
    } = assets::paths();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="htmx-config" content=(HTMX_CONFIG);
                title { (title) " - Mooring" }
                link rel="icon" href=(icon);
                link rel="stylesheet" href=(style);
                // Sets the theme, so it comes before anything is shown.
                script src=(page_script) {}
                script src=(htmx) defer {}
                script src=(htmx_events) defer {}
            }
            body { (body) }
        }
    }
}

fn html_reply(status: StatusCode, page: Markup) -> Response {
    let mut reply = Response::new(page.into_string().into());
    *reply.status_mut() = status;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, html);
    reply
}

/// A reply without a body.
pub(super) fn empty(status: StatusCode) -> Response {
    let mut reply = Response::default();
    *reply.status_mut() = status;
    reply
}

/// Sends the browser to another page.
pub(super) fn see_other(path: &str) -> Response {
    let mut reply = empty(StatusCode::SEE_OTHER);
    reply.headers_mut().extend(location(path));
    reply
}

/// A notice.
pub(super) fn notice(notice: &Notice) -> Markup {
    let (kind, role) = match notice.is_problem {
        true => ("notice problem", "alert"),
        false => ("notice done", "status"),
    };
    html! { p class=(kind) role=(role) { (notice.text) } }
}

/// The token that a form has to be sent with.
pub(super) fn token_field(context: &PageContext) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(context.form_token()); }
}

/// A state as a label: its word decides about the color, and is always there to read.
pub(super) fn state(word: &str, label: &str) -> Markup {
    let kind = match word {
        "ok" | "serving" | "active" | "completed" | "approved" | "bound" => "good",
        "degraded" | "draining" | "pending" | "running" | "parked" | "claimed" | "expired" => {
            "fair"
        }
        "unavailable" | "dead" | "failed" | "timed_out" | "killed" | "lost" | "blocked"
        | "rejected" | "revoked" | "orphaned" => "bad",
        _ => "plain",
    };
    html! { span.state data-state=(kind) { (label) } }
}

/// A table that scrolls by itself where it is too wide, which the keyboard can do too. A heading that begins with `#` is one
/// of numbers.
pub(super) fn table(label: &str, headings: &[&str], rows: Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table {
                thead { tr { @for heading in headings {
                    @match heading.strip_prefix('#') {
                        Some(heading) => th.number scope="col" { (heading) },
                        None => th scope="col" { (heading) },
                    }
                } } }
                tbody { (rows) }
            }
        }
    }
}

/// A part of a whole as a bar; `label` says the same.
pub(super) fn bar(part: u64, whole: u64, label: &str) -> Markup {
    let percent = part
        .saturating_mul(100)
        .checked_div(whole)
        .unwrap_or_default();
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=(label) {
            rect.track width="100" height="10" {}
            rect.fill width=(percent.min(100)) height="10" {}
        }
    }
}

/// A moment of RFC 3339, short to read.
pub(super) fn moment(moment: &str) -> Markup {
    let short = moment.get(..19).unwrap_or(moment).replacen('T', " ", 1);
    html! {
        @if !moment.is_empty() { time datetime=(moment) title=(moment) { (short) } }
    }
}

/// What a list without items shows.
pub(super) fn nothing(text: &str) -> Markup {
    html! { p.nothing { (text) } }
}
