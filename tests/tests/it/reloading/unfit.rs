//! Servers that operators have added and that a gateway does not serve: because it cannot use them, because it does not know
//! them yet, or because they are gone; and what remains of them.

use anyhow::ensure;
use http::Method;
use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::added::{seen_by, send};
use super::{SEEN_WITHIN, http_server};

/// The status of an `initialize` at this server.
async fn status(gateway: &Gateway, server: &str) -> anyhow::Result<u16> {
    let client = HttpClient::default();
    let reply = client.get(&gateway.mcp_url(server)).await?;
    Ok(reply.status.as_u16())
}

/// One gateway has keys, which the added server needs, and the other has none.
#[tokio::test]
async fn a_server_that_does_not_fit_one_gateway_is_left_out_there_and_holds_up_no_other()
-> anyhow::Result<()> {
    let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
    let fixture = Fixture::start("one").await?;
    let server = http_server("kept", &[fixture.url()]);
    let without = format!("[store]\nurl = {:?}\n{server}", redis.url());
    let with = format!(
        "[store]\nurl = {:?}\n[worker]\n{}{server}",
        redis.url(),
        keys.toml()
    );
    let mut gateways = vec![
        Gateway::start("keyed", Settings::toml(with.clone())).await?,
        Gateway::start("bare", Settings::toml(without)).await?,
    ];

    let signed = json!({"id": "signed", "url": fixture.url(), "forward_identity": true});
    let (added, answer) = send(&gateways[0], Method::POST, "", &signed).await?;
    ensure!(added == 201, "{answer}");
    let plain = json!({"id": "plain", "url": fixture.url()});
    let (added, answer) = send(&gateways[0], Method::POST, "", &plain).await?;
    ensure!(added == 201, "{answer}");
    seen_by(&gateways, "plain", true).await?;
    seen_by(&gateways[..1], "signed", true).await?;

    assert_eq!(
        status(&gateways[1], "signed").await?,
        503,
        "it may still come"
    );
    assert_eq!(status(&gateways[1], "unknown").await?, 404);
    // The line follows what it reports.
    let bare = &mut gateways[1];
    let log = wait::until_logged("is left out", 1, || bare.process().log_text()).await?;
    let remark = log.lines().find(|line| line.contains("is left out"));
    let remark = remark.unwrap_or_default();
    ensure!(remark.contains("worker.fleet_keys_file"), "{log}");
    ensure!(!remark.contains("nothing was changed"), "{remark}");

    // What it lacked it has after a restart, and tries again.
    gateways[1].write_settings(&with)?;
    gateways[1].restart().await?;
    seen_by(&gateways, "signed", true).await?;
    let (removed, answer) = send(&gateways[1], Method::DELETE, "/signed", &Value::Null).await?;
    ensure!(removed == 200, "{answer}");
    seen_by(&gateways, "signed", false).await
}

#[tokio::test]
async fn a_gateway_that_starts_without_its_store_refuses_no_server_for_good() -> anyhow::Result<()>
{
    let mut redis = Redis::start().await?;
    let fixture = Fixture::start("one").await?;
    let server = http_server("kept", &[fixture.url()]);
    let settings = Settings::toml(format!("[store]\nurl = {:?}\n{server}", redis.url()));
    let mut gateway = Gateway::start("early", settings).await?;
    assert_eq!(status(&gateway, "unknown").await?, 404);
    redis.process().kill_now()?;
    assert_eq!(
        status(&gateway, "unknown").await?,
        404,
        "it has read what there is"
    );
    gateway.restart().await?;
    assert_eq!(
        status(&gateway, "unknown").await?,
        503,
        "it may have been added"
    );
    redis.restart().await?;
    wait::until_true("it knows", SEEN_WITHIN, async || {
        Ok(status(&gateway, "unknown").await? == 404)
    })
    .await?;
    let mut session = McpSession::open(&HttpClient::default(), &[gateway.mcp_url("kept")]).await?;
    assert_eq!(session.increment().await?, 1);
    Ok(())
}

/// The upkeep of the volume does not end with the last server that used it.
#[tokio::test]
async fn what_the_last_code_server_leaves_on_the_volume_is_cleaned_up() -> anyhow::Result<()> {
    let (redis, volume) = (Redis::start().await?, CodeVolume::new()?);
    let fixture = Fixture::start("one").await?;
    let settings = volume
        .settings(&redis.url())
        .env("MOORING_CODE_SESSION_TTL_SECONDS", "3")
        .env("MOORING_AFFINITY_REAP_INTERVAL_MS", "200");
    let mut gateway = Gateway::start("last", settings).await?;
    let mut coder = Coder::open(&[&gateway], "ada").await?;
    // Its session expires after the server was removed.
    ensure!(coder.python("print(1)").await? == "1");

    let plain = http_server("plain", &[fixture.url()]);
    gateway.write_settings(&format!("[store]\nurl = {:?}\n{plain}", redis.url()))?;
    gateway.hang_up()?;
    let mark = format!("servers_removed={SERVER}");
    wait::until_logged(&mark, 1, || gateway.process().log_text()).await?;
    wait::until_true("the session's directory to go", SEEN_WITHIN, async || {
        Ok(volume.sessions()?.is_empty() && volume.trashed_sessions()?.is_empty())
    })
    .await
}
