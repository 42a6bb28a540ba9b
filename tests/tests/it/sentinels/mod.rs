//! A store behind sentinels: every gateway follows the primary, and what no replica had is told as lost.

pub(crate) mod failovers;
mod partition;

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::port::free_port;
use mooring_tests::sentinel_group::{SERVICE, SentinelGroup};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;

use crate::doctor::mooring;
use crate::recovery::{Answered, attempt, mark_of, rebinds};

/// How long a failover may take, with all that follows from it, on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// What `/readyz` says of the store.
async fn store_part(gateway: &Gateway) -> anyhow::Result<Value> {
    let reply = HttpClient::default().get(&gateway.url("/readyz")).await?;
    Ok(reply.json().await?["parts"]["store"].clone())
}

/// Waits until the gateway serves from the server that sentinels have promoted.
async fn until_followed(gateway: &Gateway, group: &SentinelGroup) -> anyhow::Result<()> {
    wait::until_true("the promoted server to serve", SETTLED_WITHIN, async || {
        let store = store_part(gateway).await?;
        let promoted = group.promoted_address()?;
        Ok(store["status"] == "ok" && promoted.is_some_and(|address| store["server"] == *address))
    })
    .await
}

/// The answer to an `increment` as soon as it is another one than 503, after which nothing ran.
async fn answered(session: &mut McpSession) -> anyhow::Result<Answered> {
    wait::until("an answer of the store", SETTLED_WITHIN, async || {
        let answered = attempt(session, "increment").await?;
        Ok((answered.status != 503).then_some(answered))
    })
    .await
}

#[tokio::test]
async fn every_gateway_follows_the_primary_that_sentinels_promote() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let mut group = SentinelGroup::start().await?;
    let toml = settings_toml(&group.url(), &[fixture.url()]);
    let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
    let mut sessions = Vec::new();
    for gateway in &gateways {
        let (store, port) = (store_part(gateway).await?, group.servers[0].port());
        assert_eq!(store["discovery"], "sentinel", "{store}");
        assert_eq!(store["server"], format!("127.0.0.1:{port}"), "{store}");
        let endpoint = [gateway.mcp_url("tools")];
        let mut session = McpSession::open(&HttpClient::default(), &endpoint).await?;
        assert_eq!(session.increment().await?, 1);
        sessions.push(session);
    }
    group.until_replicated().await?;
    for replica in &group.servers[1..] {
        replica.cli(&["REPLICAOF", "127.0.0.1", "1"])?;
    }
    let endpoint = [gateways[0].mcp_url("tools")];
    let lost = McpSession::open(&HttpClient::default(), &endpoint).await?;

    group.servers[0].process().kill_now()?;
    for gateway in &gateways {
        until_followed(gateway, &group).await?;
    }
    // Each through the gateway that has not seen it before.
    for (session, gateway) in sessions.iter().zip(gateways.iter().rev()) {
        let there = [gateway.mcp_url("tools")];
        let mut session = session.fork(&HttpClient::default(), &there);
        let answered = answered(&mut session).await?;
        assert_eq!(answered.count(), 2);
        assert_eq!(answered.exchange.as_ref().and_then(mark_of), None);
    }
    for gateway in &gateways {
        let there = [gateway.mcp_url("tools")];
        let mut session = lost.fork(&HttpClient::default(), &there);
        let answered = answered(&mut session).await?;
        assert_eq!(answered.status, 404, "{answered:?}");
    }
    assert_eq!(rebinds(&gateways, "upstream").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_wrong_name_of_the_service_is_named_before_anything_is_served() -> anyhow::Result<()> {
    let group = SentinelGroup::start().await?;
    let url = group.url();
    let toml = |url: &str| -> anyhow::Result<String> {
        Ok(format!(
            "[store]\nurl = {url:?}\n[listen]\naddress = \"127.0.0.1:{}\"\n\
             [[servers]]\nid = \"code\"\nkind = \"code\"\n",
            free_port()?
        ))
    };
    let misspelt = toml(&url.replace(SERVICE, "misspelt"))?;
    let (status, text) = Gateway::refused(Settings::toml(misspelt.clone())).await?;
    assert_eq!(status.code(), Some(69), "{text}");
    let (_, report) = mooring(&["doctor"], &misspelt).await?;
    for text in [text, report] {
        assert!(text.contains("monitor no service \"misspelt\""), "{text}");
    }

    let (_, report) = mooring(&["doctor"], &toml(&url)?).await?;
    let primary = group.servers[0].port();
    let found = format!("the server is 127.0.0.1:{primary} (discovery: sentinel)");
    assert!(report.contains(&found), "{report}");
    let secret = url.replace("://", "://gateway:a-secret@");
    let (code, text) = mooring(&["config", "check"], &toml(&secret)?).await?;
    assert_eq!(code, Some(0), "{text}");
    let way =
        format!("store: the primary that sentinels name for {SERVICE:?} (redis+sentinel://***@");
    assert!(text.contains(&way) && !text.contains("a-secret"), "{text}");
    Ok(())
}
