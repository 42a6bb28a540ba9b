//! One session: what it is, where its calls go, and how it came to be so.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::parts::problem_page;
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{moment, state, table};
use crate::http::ui::layout;
use crate::http::ui::live;
use crate::http::ui::navigation::SESSIONS;
use mooring_admin::OperatorError;
use mooring_admin::sessions::{BindingDetail, SessionDetail};
use mooring_admin::{SessionEvent, SessionHistory, SessionStatus, SessionWaits};
use mooring_settings::Right;

const TITLE: &str = "Session";

/// The session, as it is now and as it changes.
pub(super) async fn show(
    context: PageContext,
    Path(named): Path<String>,
) -> Result<Response, Response> {
    context.require_one(SESSIONS.rights)?;
    Ok(match find(&context, &named).await {
        Ok(shown) => {
            let session = &shown.detail;
            let digest = &session.summary.session;
            let is_active = session.summary.state == SessionStatus::Active;
            let content = html! {
                @if is_active && context.may(Right::SessionsManage) {
                    div.acts {
                        @for binding in &session.bindings {
                            a href=(format!("/ui/acts/move?session={digest}&server={}", binding.server)) {
                                "Move it away from " (binding.instance)
                            }
                        }
                        a href=(format!("/ui/acts/end?session={digest}")) { "End this session" }
                    }
                }
                section hx-sse:connect=(format!("/ui/sessions/{digest}/live")) hx-swap="innerMorph" {
                    (content_of(&shown))
                }
            };
            layout::page(&context, TITLE, Some(SESSIONS), content)
        }
        Err(error) => problem_page(&context, TITLE, SESSIONS, &Problem::from(error)),
    })
}

/// The same whenever it has changed, as long as it exists.
pub(super) async fn live(
    context: PageContext,
    Path(named): Path<String>,
) -> Result<Response, Response> {
    context.require_one(SESSIONS.rights)?;
    let found = context
        .operator()
        .session(&context.operator_identity(), &named)
        .await;
    // The search for it is made once.
    let named = found.map_or(named, |detail| detail.summary.session);
    Ok(live::stream(context, move |context: Arc<PageContext>| {
        let named = named.clone();
        async move {
            let shown = find(&context, &named).await.ok()?;
            Some(content_of(&shown))
        }
    }))
}

/// A session with its past and present.
struct ShownSession {
    detail: SessionDetail,
    history: SessionHistory,
    waits: SessionWaits,
}

async fn find(context: &PageContext, named: &str) -> Result<ShownSession, OperatorError> {
    let (operator, by) = (context.operator(), context.operator_identity());
    let detail = operator.session(&by, named).await?;
    // Found by the beginning of it with a search, by the whole without.
    let digest = detail.summary.session.clone();
    Ok(ShownSession {
        history: operator.session_history(&by, &digest).await?,
        waits: operator.session_waits(&by, &digest).await?,
        detail,
    })
}

fn content_of(shown: &ShownSession) -> Markup {
    let session = &shown.detail;
    let summary = &session.summary;
    let status: &'static str = summary.state.into();
    html! {
        dl.facts {
            div { dt { "Digest of its id" } dd { code { (summary.session) } } }
            div { dt { "State" } dd { (state(status, status)) } }
            div { dt { "Kind" } dd { (<&'static str>::from(summary.kind)) } }
            div { dt { "User" } dd { (summary.principal) } }
            @if let Some(place) = &summary.place { div { dt { "Place" } dd { code { (place) } } } }
            div { dt { "Created" } dd { (moment(&summary.created_at)) } }
            div { dt { "Last written use" } dd { (moment(&summary.last_used_at)) } }
            div { dt { "Expires" } dd { (moment(&summary.expires_at)) } }
            @for (name, value) in &session.labels { div { dt { "Label " (name) } dd { (value) } } }
        }
        @if !session.bindings.is_empty() {
            h2 { "Where its calls go" }
            (bindings(&session.bindings))
        }
        @if !shown.waits.sentences.is_empty() {
            h2 { "What its calls wait for" }
            ul { @for sentence in &shown.waits.sentences { li { (sentence) } } }
        }
        @if !shown.history.entries.is_empty() {
            h2 { "Life line" }
            (life_line(&shown.history.entries))
        }
        @if !session.explanation.is_empty() {
            h2 { "In sentences" }
            ul { @for sentence in &session.explanation { li { (sentence) } } }
        }
    }
}

fn life_line(entries: &[SessionEvent]) -> Markup {
    html! {
        ol.life {
            @for entry in entries {
                li {
                    (moment(&entry.at)) (entry.sentence)
                    @if entry.times > 1 { " (" (entry.times) " times)" }
                    p.help { (entry.gateway) }
                }
            }
        }
    }
}

fn bindings(bindings: &[BindingDetail]) -> Markup {
    let rows = html! {
        @for binding in bindings {
            tr {
                td { (binding.server) }
                td { (state(&binding.state, &binding.state)) }
                td.name { code { (binding.instance) } }
                td.name {
                    @match &binding.owner {
                        Some(owner) => { code { (owner.worker) } @if !owner.alive { " " (state("dead", "dead")) } },
                        None => code { (binding.driver) },
                    }
                }
                td { (moment(&binding.bound_at)) }
                td {
                    @match binding.rebinds { 0 => "never", 1 => "once", times => { (times) " times" } }
                    @if let Some(reason) = &binding.last_reason { ", last: " (reason) }
                }
                td.number { (binding.epoch) }
            }
        }
    };
    let headings = [
        "Server", "State", "Instance", "Gateway", "Since", "Moved", "#Epoch",
    ];
    table("Bindings", &headings, rows)
}
