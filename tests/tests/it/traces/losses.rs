//! A collector that is away: calls go on, and what is lost is counted.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::collector::Collector;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use super::{has, telemetry_toml};
use crate::doctor::mooring;
use crate::recovery::readiness;
use crate::rig::kept;

/// How long a batch may take to be counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(60);
const DROPPED: &str = "mooring_spans_dropped_total";

#[tokio::test]
async fn calls_go_on_without_the_collector_and_lost_spans_are_counted() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).more_toml(&telemetry_toml(&collector));
    let mut gateway = Gateway::start("traced", settings).await?;
    let endpoints = [gateway.mcp_url("tools")];
    let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
    assert_eq!(session.increment().await?, 1);
    collector
        .until("the first call", |spans| {
            has(spans, "tools/call increment", "SERVER")
        })
        .await?;
    assert!(gateway.metric("mooring_spans_exported_total", &[]).await? > 0.0);

    let port = collector.stop().await?;
    assert_eq!(session.increment().await?, 2);
    let failed = ["reason=\"export_failed\""];
    wait::until_true("the loss to be counted", COUNTED_WITHIN, async || {
        Ok(gateway.metric(DROPPED, &failed).await? > 0.0)
    })
    .await?;
    let (status, text) = readiness(&gateway).await?;
    assert_eq!(status, 200, "{text}");
    for count in 3..6 {
        assert_eq!(session.increment().await?, count);
        let before = gateway.metric(DROPPED, &failed).await?;
        wait::until_true("another loss", COUNTED_WITHIN, async || {
            Ok(gateway.metric(DROPPED, &failed).await? > before)
        })
        .await?;
    }
    let log = gateway.process().log_text();
    assert_eq!(log.matches("spans not exported").count(), 1, "{log}");

    let collector = Collector::start_at(port).await?;
    assert_eq!(session.increment().await?, 6);
    collector
        .until("a call after its return", |spans| {
            has(spans, "tools/call increment", "SERVER")
        })
        .await?;
    // The last spans are sent before the process ends.
    assert_eq!(session.increment().await?, 7);
    gateway.process().terminate().await?;
    let count = |spans: &[mooring_tests::collector::ReceivedSpan]| {
        let calls = spans.iter().filter(|span| span.kind == "SERVER");
        calls
            .filter(|span| span.name == "tools/call increment")
            .count()
    };
    collector
        .until("the last call", |spans| count(spans) == 2)
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_doctor_asks_the_collector() -> anyhow::Result<()> {
    let (collector, fixture) = (Collector::start().await?, Fixture::start("one").await?);
    let toml = format!(
        "[store]\nurl = \"embedded\"\n[listen]\naddress = \"127.0.0.1:{}\"\n[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n{}",
        mooring_tests::port::free_port()?,
        fixture.url(),
        telemetry_toml(&collector),
    );
    let (code, text) = mooring(&["doctor"], &toml).await?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("/v1/traces takes traces"), "{text}");
    collector.stop().await?;
    let (code, text) = mooring(&["doctor"], &toml).await?;
    assert_eq!(
        code,
        Some(0),
        "a warning: requests are served without it: {text}"
    );
    assert!(text.contains("warning  telemetry.otlp_endpoint"), "{text}");
    Ok(())
}
