//! The official conformance suite: the fixture passes all of it that is about sessions, and through the gateway nothing is
//! lost, also of what is about requests without one, of which the fixture passes a part.
//!
//! The suite's DNS rebinding scenario asks the server under test to refuse a foreign Host and Origin, so
//! through the gateway it is the gateway's own checks that pass it.

use std::collections::BTreeMap;

use mooring_tests::balancer::Balancer;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::identity_provider::{AUDIENCE, IdentityProvider};
use mooring_tests::redis::Redis;
use mooring_tests::script::run_conformance;

/// Runs the suite and expects every check of every scenario to pass, whether it is scored or not.
async fn assert_conforms(url: &str, token: Option<&str>) -> anyhow::Result<()> {
    let output = run_conformance(url, token, &["--requirements", "2025-11-25"]).await?;
    assert!(output.succeeded, "{}\n{}", output.stdout, output.stderr);
    let total = output
        .stdout
        .lines()
        .find(|line| line.starts_with("Total:"))
        .unwrap_or_default();
    assert_eq!(total, "Total: 84 passed, 0 failed", "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn the_fixture_itself_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    assert_conforms(&fixture.url(), None).await
}

#[tokio::test]
async fn the_gateway_on_redis_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let fleet = Fleet::start(1, &[fixture.url()]).await?;
    assert_conforms(&fleet.endpoints()[0], None).await
}

#[tokio::test]
async fn the_gateway_on_the_embedded_store_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let settings = Settings::toml(settings_toml("embedded", &[fixture.url()]));
    let gateway = Gateway::start("embedded", settings).await?;
    assert_conforms(&gateway.mcp_url("tools"), None).await
}

#[tokio::test]
async fn the_gateway_with_nothing_set_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let url = fixture.url();
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{url:?}]\n"
    ));
    let gateway = Gateway::start("unset", settings).await?;
    assert_conforms(&gateway.mcp_url("tools"), None).await
}

/// The suite's scenarios of authorization are for clients and authorization servers. Of a resource server it asks that all
/// others pass with a token, and that nothing does without one.
#[tokio::test]
async fn the_gateway_with_tokens_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let provider = IdentityProvider::start().await?;
    let settings = Settings::toml(settings_toml("embedded", &[fixture.url()]));
    let gateway = Gateway::start("tokens", settings.more_toml(&provider.toml())).await?;
    let url = gateway.mcp_url("tools");
    let token = provider.token("ada", AUDIENCE, "read").await?;
    assert_conforms(&url, Some(&token)).await?;

    let without = run_conformance(&url, None, &["--scenario", "ping"]).await?;
    assert!(!without.succeeded, "{}", without.stdout);
    Ok(())
}

/// How many checks of each scenario fail, of the requirements of 2026-07-28.
async fn failures_without_session(url: &str) -> anyhow::Result<BTreeMap<String, u32>> {
    let output = run_conformance(url, None, &["--requirements", "2026-07-28"]).await?;
    let mut failures = BTreeMap::new();
    for line in output.stdout.lines() {
        let Some(line) = line.strip_prefix(['✓', '✗']) else {
            continue;
        };
        let (scenario, counts) = line.split_once(": ").unwrap_or((line, ""));
        let failed = counts.split_once(" passed, ").and_then(|(_, rest)| {
            let (failed, _) = rest.split_once(" failed")?;
            failed.parse().ok()
        });
        if let Some(failed) = failed {
            failures.insert(scenario.trim().to_owned(), failed);
        }
    }
    anyhow::ensure!(failures.len() > 20, "{}\n{}", output.stdout, output.stderr);
    Ok(failures)
}

/// Directly, through one gateway, and through three behind a balancer.
#[tokio::test]
async fn gateways_lose_nothing_of_requests_without_a_session() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let direct = failures_without_session(&fixture.url()).await?;
    let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
    let toml = settings_toml(&redis.url(), &[fixture.url()]) + "era = \"modern\"\n";
    let settings = Settings::toml(toml).more_toml(&format!("[worker]\n{}", keys.toml()));
    let gateways = Gateway::fleet(3, &settings).await?;
    let ports = gateways.iter().map(Gateway::port).collect();
    let balancer = Balancer::start(ports).await?;
    for url in [
        gateways[0].mcp_url("tools"),
        balancer.url("/servers/tools/mcp"),
    ] {
        let through = failures_without_session(&url).await?;
        let lost: Vec<_> = through
            .iter()
            .filter(|(scenario, failed)| **failed > direct.get(*scenario).copied().unwrap_or(0))
            .collect();
        assert!(lost.is_empty(), "{url}: {lost:?}, directly {direct:?}");
        assert_eq!(through.len(), direct.len(), "{url}: every scenario ran");
    }
    Ok(())
}
