//! Traffic: what the whole fleet has done in the last one to two minutes, by server, instance and gateway, and who sends most.

use std::sync::Arc;

use axum::response::Response;
use maud::{Markup, html};

use super::parts::{content_or_problem, live_page, missing_gateways};
use super::sessions;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{bar, nothing, state, table};
use crate::http::ui::live;
use crate::http::ui::navigation::{SERVERS, TRAFFIC};
use mooring_admin::{OperatorError, TrafficView};
use mooring_metrics::{ExchangeFigures, RecentExchanges};
use mooring_pipeline::{SenderFigures, TopSenders};

/// From which share of its exchanges a server or instance is marked: one in so many failed, or was refused.
const MARKED_SHARE: u64 = 10;

/// The headings of figures.
const FIGURES: [&str; 7] = [
    "#Ended",
    "#Mean time",
    "#Slowest",
    "#Waiting now",
    "#Failed",
    "#Refused",
    "#Given up",
];

/// The traffic, as it is now and as it changes.
pub(super) async fn show(context: PageContext) -> Result<Response, Response> {
    context.require_one(TRAFFIC.rights)?;
    Ok(live_page(&context, TRAFFIC, content(&context).await))
}

/// The same whenever it has changed.
pub(super) async fn live(context: PageContext) -> Result<Response, Response> {
    context.require_one(TRAFFIC.rights)?;
    Ok(live::stream(context, async |context: Arc<PageContext>| {
        Some(content_or_problem(content(&context).await))
    }))
}

async fn content(context: &PageContext) -> Result<Markup, OperatorError> {
    let operator = context.operator();
    let traffic = operator.traffic(&context.operator_identity()).await?;
    let missing = traffic.gateways.iter().filter_map(|gateway| {
        let problem = gateway.figures.as_ref().err()?;
        Some((gateway.worker.as_str(), problem.as_str()))
    });
    Ok(html! {
        (missing_gateways(missing))
        p.help {
            "Messages of the last " (traffic.seconds) " s at all gateways. What took most time in all comes first. "
            "Slow: a mean of at least " (time(traffic.slow_us)) "."
        }
        h2 { "Requests of clients by server" }
        (exchange_table("Requests of clients by server", &traffic.servers, traffic.slow_us))
        h2 { "Exchanges with instances" }
        (exchange_table("Exchanges with instances", &traffic.instances, traffic.slow_us))
        h2 { "Requests of clients by gateway" }
        (gateway_table(&traffic))
        @if let Some(senders) = &traffic.senders { (sender_tables(senders)) }
    })
}

fn exchange_table(label: &str, exchanges: &[RecentExchanges], slow_us: u64) -> Markup {
    if exchanges.is_empty() {
        return nothing("Nothing was sent.");
    }
    let has_instances = exchanges.iter().any(|of| of.instance.is_some());
    let rows = html! {
        @for of in exchanges {
            tr {
                td { a href=(format!("{}/{}", SERVERS.path, of.server)) { (of.server) } }
                @if let Some(instance) = &of.instance { td { code { (instance) } } }
                td { (marks(&of.figures, slow_us)) }
                (figure_cells(&of.figures))
            }
        }
    };
    let names: &[&str] = match has_instances {
        true => &["Server", "Instance", "State"],
        false => &["Server", "State"],
    };
    table(label, &[names, &FIGURES].concat(), rows)
}

fn gateway_table(traffic: &TrafficView) -> Markup {
    let rows = html! {
        @for gateway in &traffic.gateways {
            @if let Ok(figures) = &gateway.figures {
                tr {
                    td { code { (gateway.worker) } }
                    td { (marks(figures, traffic.slow_us)) }
                    (figure_cells(figures))
                }
            }
        }
    };
    let headings = [&["Gateway", "State"][..], &FIGURES].concat();
    table("Requests of clients by gateway", &headings, rows)
}

/// What is worth a look.
fn marks(figures: &ExchangeFigures, slow_us: u64) -> Markup {
    let is_marked = |part: u64| part > 0 && part.saturating_mul(MARKED_SHARE) >= figures.ended;
    let marks = [
        (figures.ended > 0 && figures.mean_us() >= slow_us, "slow"),
        (is_marked(figures.failed), "failing"),
        (is_marked(figures.refused), "refusing"),
        (figures.ended == 0, "waiting"),
    ];
    let marks: Vec<_> = marks.into_iter().filter(|(is_set, _)| *is_set).collect();
    html! {
        @for (_, mark) in &marks { (state("degraded", mark)) " " }
        @if marks.is_empty() { (state("ok", "ok")) }
    }
}

fn figure_cells(figures: &ExchangeFigures) -> Markup {
    html! {
        td.number { (figures.ended) }
        td.number { (time(figures.mean_us())) }
        td.number { (time(figures.slowest_us)) }
        td.number { (figures.waiting) }
        td.number { (figures.failed) }
        td.number { (figures.refused) }
        td.number { (figures.abandoned) }
    }
}

/// A time, short to read.
fn time(us: u64) -> String {
    let tenths = |of: u64| format!("{}.{}", us / of, us % of / (of / 10));
    match us {
        0 => "0".to_owned(),
        1..100_000 => format!("{} ms", tenths(1_000)),
        100_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{} s", tenths(1_000_000)),
    }
}

fn sender_tables(senders: &TopSenders) -> Markup {
    let most = senders.users.iter().map(|of| of.figures.calls).max();
    let most = most.unwrap_or_default();
    let sessions = html! {
        @for of in &senders.sessions {
            tr {
                td { a href=(sessions::path_of(&of.session)) { code { (of.session) } } }
                td { (of.server) }
                td { code { (of.user) } }
                (sender_cells(&of.figures, most))
            }
        }
    };
    let users = html! {
        @for of in &senders.users {
            tr { td { code { (of.user) } } (sender_cells(&of.figures, most)) }
        }
    };
    const SENT: [&str; 4] = ["#Requests", "Share", "#Refused or failed", "#Bytes"];
    html! {
        h2 { "Sessions that send most" }
        @if senders.sessions.is_empty() { (nothing("No session has sent anything.")) } @else {
            (table("Sessions that send most", &[&["Session", "Server", "User"][..], &SENT].concat(), sessions))
        }
        h2 { "Users that send most" }
        @if senders.users.is_empty() { (nothing("No user has sent anything.")) } @else {
            (table("Users that send most", &[&["User"][..], &SENT].concat(), users))
        }
    }
}

fn sender_cells(figures: &SenderFigures, most: u64) -> Markup {
    html! {
        td.number { (figures.calls) }
        td { (bar(figures.calls, most, &format!("{} requests", figures.calls))) }
        td.number { (figures.refused) }
        td.number { (figures.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_to_read() {
        for (us, expected) in [
            (0, "0"),
            (40, "0.0 ms"),
            (2_350, "2.3 ms"),
            (99_999, "99.9 ms"),
            (300_000, "300 ms"),
            (2_050_000, "2.0 s"),
            (61_500_000, "61.5 s"),
        ] {
            assert_eq!(time(us), expected);
        }
    }

    #[test]
    fn what_is_worth_a_look_is_marked() {
        let figures = ExchangeFigures {
            ended: 100,
            total_us: 100_000,
            ..ExchangeFigures::default()
        };
        let marked = |figures: ExchangeFigures| {
            let words = ["slow", "failing", "refusing", "waiting", "ok"];
            let shown = marks(&figures, 1_000_000).into_string();
            let is_shown = |word: &&str| shown.contains(&format!(">{word}<"));
            words.into_iter().filter(is_shown).collect::<Vec<_>>()
        };
        assert_eq!(marked(figures), ["ok"]);
        let failed = |failed| ExchangeFigures { failed, ..figures };
        assert_eq!(marked(failed(9)), ["ok"]);
        assert_eq!(marked(failed(10)), ["failing"]);
        let slow = ExchangeFigures {
            total_us: 100_000_000,
            refused: 50,
            ..figures
        };
        assert_eq!(marked(slow), ["slow", "refusing"]);
        let hanging = ExchangeFigures {
            waiting: 3,
            ..ExchangeFigures::default()
        };
        assert_eq!(marked(hanging), ["waiting"]);
    }
}
