//! US-4: Developer - Enable/Disable Affinity Per Gateway. "As a Developer configuring gateways I want to enable session
//! affinity for specific gateways so that I can use it only where needed." `affinity_off.rs` and `lifetimes.rs` have more.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::json;

use crate::rig::store_commands;

const EXPIRED_WITHIN: Duration = Duration::from_secs(60);

/// Two equal instances, and a gateway whose affinity only these variables decide about.
async fn gateway(variables: &[(&str, &str)]) -> anyhow::Result<([Fixture; 2], Gateway)> {
    let servers = [Fixture::start("us-1").await?, Fixture::start("us-2").await?];
    let instances = servers.each_ref().map(Fixture::url);
    let toml = format!("[[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = {instances:?}\n");
    let set = |settings: Settings, (name, value): &(&str, &str)| settings.env(name, value);
    let settings = variables.iter().fold(Settings::toml(toml), set);
    Ok((servers, Gateway::start("gateway-1", settings).await?))
}

async fn open(gateway: &Gateway) -> anyhow::Result<McpSession> {
    McpSession::open(&HttpClient::default(), &[gateway.mcp_url("tools")]).await
}

#[tokio::test]
async fn enable_session_affinity_globally() -> anyhow::Result<()> {
    // Given MCPGATEWAY_SESSION_AFFINITY_ENABLED=true
    let (_servers, gateway) = gateway(&[("MCPGATEWAY_SESSION_AFFINITY_ENABLED", "true")]).await?;
    // When a new session is created
    let mut session = open(&gateway).await?;
    // Then session affinity should be tracked
    assert!(session.id().is_some());
    assert_eq!(
        gateway
            .metric("session_affinity_bindings_active", &[])
            .await? as u64,
        1
    );
    // And all tool calls should maintain affinity
    for expected in 1..=6 {
        assert_eq!(session.increment().await?, expected);
    }
    Ok(())
}

#[tokio::test]
async fn affinity_disabled() -> anyhow::Result<()> {
    // Given MCPGATEWAY_SESSION_AFFINITY_ENABLED=false (unset, the server decides: see affinity_unset.rs)
    let (servers, gateway) = gateway(&[("MCPGATEWAY_SESSION_AFFINITY_ENABLED", "false")]).await?;
    let before = store_commands(&gateway).await?;
    // When tool calls are made
    let mut session = open(&gateway).await?;
    for _ in 0..6 {
        session.increment().await?;
    }
    // Then requests may route to any available upstream session
    for server in &servers {
        assert!(
            server.stats().await?.calls_of("increment") > 0,
            "both are used"
        );
    }
    // And no affinity tracking overhead occurs
    // What looks like a session id says in itself that nothing is kept under it.
    assert!(session.id().is_none_or(|id| id.starts_with("stateless-")));
    assert_eq!(store_commands(&gateway).await? as u64, before as u64);
    assert_eq!(
        gateway
            .metric("session_affinity_bindings_active", &[])
            .await? as u64,
        0
    );
    Ok(())
}

#[tokio::test]
async fn configure_affinity_ttl() -> anyhow::Result<()> {
    // Given MCPGATEWAY_SESSION_AFFINITY_TTL=3600 (here 1)
    let (_servers, gateway) = gateway(&[
        ("MCPGATEWAY_SESSION_AFFINITY_ENABLED", "true"),
        ("MCPGATEWAY_SESSION_AFFINITY_TTL", "1"),
    ])
    .await?;
    let mut session = open(&gateway).await?;
    assert_eq!(session.increment().await?, 1);
    // When a session has no activity for 1 hour (here 1 second, and a request would be an activity)
    wait::until_true("the end of the session", EXPIRED_WITHIN, async || {
        let active = gateway.metric("session_affinity_bindings_active", &[]);
        Ok(active.await? == 0.0)
    })
    .await?;
    // Then the affinity mapping should expire
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(session.post(&ping).await?.status, 404);
    // And next request gets fresh assignment
    let mut fresh = open(&gateway).await?;
    assert_ne!(fresh.id(), session.id());
    assert_eq!(fresh.increment().await?, 1);
    Ok(())
}
