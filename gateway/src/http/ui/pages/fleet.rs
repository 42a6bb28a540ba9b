//! The fleet: how sessions are spread over gateways and instances, what drains, and the store.

use std::sync::Arc;

use axum::response::Response;
use maud::{Markup, html};

use super::parts::{content_or_problem, live_page};
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, bar, moment, state, table};
use crate::http::ui::live;
use crate::http::ui::navigation::FLEET;
use mooring_admin::{FleetView, GatewayLoad, GatewayState, OperatorError, ServerLoad, StoreView};
use mooring_settings::Right;

/// A gateway or instance with this much more than the mean is worth a look.
const SKEW_WORTH_A_LOOK: f64 = 1.5;

/// The fleet, as it is now and as it changes.
pub(super) async fn show(context: PageContext) -> Result<Response, Response> {
    context.require_one(FLEET.rights)?;
    Ok(live_page(&context, FLEET, content(&context).await))
}

/// The same whenever it has changed.
pub(super) async fn live(context: PageContext) -> Result<Response, Response> {
    context.require_one(FLEET.rights)?;
    Ok(live::stream(context, async |context: Arc<PageContext>| {
        Some(content_or_problem(content(&context).await))
    }))
}

async fn content(context: &PageContext) -> Result<Markup, OperatorError> {
    let (operator, identity) = (context.operator(), context.operator_identity());
    let fleet = operator.fleet(&identity).await?;
    let workers = operator.workers(&identity).await?;
    Ok(html! {
        (summary(&fleet, &workers.this_gateway.store))
        h2 { "Gateways" }
        (gateways(context, &fleet))
        h2 { "Sessions by server and instance" }
        div.cards { @for server in &fleet.servers { (server_card(server)) } }
        @if fleet.servers.is_empty() { (page_html::nothing("No server has instances.")) }
    })
}

fn summary(fleet: &FleetView, store: &StoreView) -> Markup {
    html! {
        dl.facts {
            @for (kind, count) in &fleet.sessions {
                div { dt { "Sessions (" (<&'static str>::from(*kind)) ")" } dd { (count) } }
            }
            div { dt { "Bindings without a live owner" } dd { (fleet.orphaned_bindings) } }
            @if let Some(skew) = fleet.gateway_skew { div { dt { "Skew of gateways" } dd { (skew_of(skew)) } } }
            div {
                dt { "Store of this gateway" }
                dd {
                    (state(if store.mode == "normal" { "ok" } else { store.mode.as_str() }, &store.mode)) " " (store.kind)
                    @if let Some(address) = &store.address { " at " code { (address) } }
                    @if let Some(problem) = &store.problem { ": " (problem) }
                }
            }
            @if !fleet.complete { div { dt { "Count" } dd { (state("degraded", "incomplete")) } } }
        }
    }
}

fn skew_of(skew: f64) -> Markup {
    html! {
        (format!("{skew:.2}"))
        @if skew >= SKEW_WORTH_A_LOOK { " " (state("degraded", "uneven")) }
    }
}

fn gateways(context: &PageContext, fleet: &FleetView) -> Markup {
    let most = fleet
        .gateways
        .iter()
        .filter_map(|load| load.worker.bindings)
        .max();
    let rows = html! {
        @for load in &fleet.gateways { (gateway_row(context, load, most.unwrap_or_default())) }
    };
    table(
        "Gateways",
        &[
            "Gateway",
            "State",
            "#Bindings",
            "Share",
            "#Owned connections",
            "Last heartbeat",
            "Act",
        ],
        rows,
    )
}

fn gateway_row(context: &PageContext, load: &GatewayLoad, most: u64) -> Markup {
    let worker = &load.worker;
    let word: &'static str = worker.state.into();
    let bindings = worker.bindings.unwrap_or_default();
    let name: String = url::form_urlencoded::byte_serialize(worker.worker.as_bytes()).collect();
    html! {
        tr {
            td { code { (worker.worker) } @if worker.is_this { " " (state("", "this")) } }
            td {
                (state(word, word))
                @if let Some(note) = &worker.drain { p.help { "by " (note.by) ": " (note.note) } }
            }
            td.number { (worker.bindings.map(|count| count.to_string()).unwrap_or_default()) }
            td { (bar(bindings, most, &format!("{bindings} bindings"))) }
            td.number { (load.owned) }
            td { (moment(&worker.last_beat_at)) }
            td {
                @if context.may(Right::FleetManage) && worker.state != GatewayState::Dead {
                    @match worker.drain.is_some() {
                        true => a href=(format!("/ui/acts/undrain?worker={name}")) { "Undrain" },
                        false => a href=(format!("/ui/acts/drain?worker={name}")) { "Drain" },
                    }
                }
            }
        }
    }
}

fn server_card(server: &ServerLoad) -> Markup {
    let most = server
        .instances
        .iter()
        .map(|load| load.sessions)
        .max()
        .unwrap_or_default();
    html! {
        div.card {
            h3 {
                a href=(format!("/ui/servers/{}", server.server)) { (server.server) }
                @if let Some(skew) = server.skew { span { "skew " (skew_of(skew)) } }
            }
            dl {
                @for load in &server.instances {
                    dt {
                        code { (load.instance) }
                        @if !load.is_configured { " " (state("degraded", "not in the settings")) }
                    }
                    dd {
                        (load.sessions) " sessions"
                        (bar(load.sessions, most, &format!("{} sessions on {}", load.sessions, load.instance)))
                    }
                }
            }
        }
    }
}
