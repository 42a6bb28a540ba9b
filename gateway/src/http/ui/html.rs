//! HTML that all pages are made of: the document, pages without navigation, notices and small parts.

use std::time::Duration;

use axum::response::Response;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use maud::{DOCTYPE, Markup, html};

use super::assets::{self, AssetPaths};
use mooring_pipeline::answer::seconds_of;

/// The field of a form with its token.
pub(super) const TOKEN_FIELD: &str = "form_token";
/// What htmx may do: it writes no style into the page, and keeps no copies of pages.
const HTMX_CONFIG: &str = r#"{"includeIndicatorCSS":false,"history":false,"prefix":""}"#;

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

/// The switch of the theme, which the script shows.
pub(super) fn theme_switch() -> Markup {
    html! {
        button.plain #theme type="button" aria-pressed="false" hidden { "Dark" }
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

pub(super) fn document(title: &str, body: Markup) -> Markup {
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

pub(super) fn html_reply(status: StatusCode, page: Markup) -> Response {
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
    if let Ok(path) = HeaderValue::try_from(path) {
        reply.headers_mut().insert(LOCATION, path);
    }
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
pub(super) fn token_field(token: &str) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(token); }
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

/// The reply to a person with too many requests.
pub(super) fn too_many(wait: Duration) -> Response {
    let seconds = seconds_of(wait);
    let text =
        format!("You have sent too many requests within a minute. Try again in {seconds} s.");
    let mut reply = bare(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests",
        &Notice::problem(text),
    );
    reply
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    reply
}
