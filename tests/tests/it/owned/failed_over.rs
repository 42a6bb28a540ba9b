//! Redis fails over to its replica, and the owner of a connection has nothing to do but to beat.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::stdio_command;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::reply_proxy::ReplyProxy;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;

use super::rig::{Shape, owned_toml, stdio_toml, unique};

const FAILED_OVER_WITHIN: Duration = Duration::from_secs(30);
const GATEWAYS: usize = 2;

#[tokio::test]
async fn an_idle_owner_keeps_its_sessions_over_a_failover() -> anyhow::Result<()> {
    let primary = Redis::start().await?;
    let replica = Redis::start_replica(&primary, Module::Loaded, &[]).await?;
    let proxy = ReplyProxy::before_redis(primary.port()).await?;
    let keys = FleetKeys::new()?;
    let tools = stdio_toml(&stdio_command(&unique("failed-over"), None, &[])?);
    let toml = owned_toml(&primary, &keys, &tools, &Shape::default());
    let toml = toml.replace(&primary.url(), &proxy.url());
    let gateways = Gateway::fleet(GATEWAYS, &Settings::toml(toml)).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateways[0].mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);
    wait::until_true("the replica to follow", FAILED_OVER_WITHIN, async || {
        Ok(primary.cli(&["WAIT", "1", "1000"])? == "1")
    })
    .await?;

    let port = replica.port();
    proxy.lead_to(port);
    primary.cli(&["FAILOVER", "TO", "127.0.0.1", &port.to_string()])?;
    // Neither gateway has any other command to send.
    wait::until_true(
        "the new primary to hear all",
        FAILED_OVER_WITHIN,
        async || {
            let listed = replica.cli(&["-3", "--json", "WORKER.LIST"])?;
            let workers: Vec<Value> = serde_json::from_str(&listed)?;
            Ok(workers.iter().filter(|worker| worker["alive"] == 1).count() == GATEWAYS)
        },
    )
    .await?;
    let mut elsewhere = session.fork(&client, &[gateways[1].mcp_url("tools")]);
    assert_eq!(elsewhere.increment().await?, 2, "nothing was lost");
    Ok(())
}
