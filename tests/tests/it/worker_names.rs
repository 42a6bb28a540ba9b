//! Two gateways with one worker name: the earlier one says that it cannot serve, and serves again once it is alone.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use crate::recovery::{attempt, readiness};

const NOTICED_WITHIN: Duration = Duration::from_secs(20);

async fn until_ready(gateway: &Gateway, expected: (u16, &str)) -> anyhow::Result<()> {
    wait::until_true("readiness to change", NOTICED_WITHIN, async || {
        let (status, word) = readiness(gateway).await?;
        Ok((status.as_u16(), word.as_str()) == expected)
    })
    .await
}

#[tokio::test]
async fn a_gateway_whose_name_was_taken_is_not_ready_until_the_name_is_free() -> anyhow::Result<()>
{
    let redis = Redis::start().await?;
    let fixture = Fixture::start("a").await?;
    let settings = Settings::toml(settings_toml(&redis.url(), &[fixture.url()]));
    let first = Gateway::start("twin", settings.clone()).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[first.mcp_url("tools")]).await?;
    assert_eq!(session.increment().await?, 1);

    let mut second = Gateway::start("twin", settings).await?;
    until_ready(&first, (503, "unavailable")).await?;
    let detail = client.get(&first.url("/readyz")).await?.json().await?;
    let cause = detail.pointer("/parts/heartbeat/cause");
    let cause = cause.and_then(|cause| cause.as_str()).unwrap_or_default();
    assert!(
        cause.contains("a later boot of this worker name"),
        "{detail}"
    );
    attempt(&mut session, "increment").await?.assert_try_again();

    second.process().kill_now()?;
    until_ready(&first, (200, "ok")).await?;
    assert_eq!(session.increment().await?, 2);
    Ok(())
}
