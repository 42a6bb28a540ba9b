//! The official conformance suite: the fixture passes all of it, and through the gateway nothing is lost.
//!
//! The suite's DNS rebinding scenario asks the server under test to refuse a foreign Host and Origin, so
//! through the gateway it is the gateway's own checks that pass it.

use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::script::run_conformance;

/// Runs the suite and expects every check of every scenario to pass, whether it is scored or not.
async fn assert_conforms(url: &str) -> anyhow::Result<()> {
    let output = run_conformance(url, &["--requirements", "2025-11-25"]).await?;
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
    assert_conforms(&fixture.url()).await
}

#[tokio::test]
async fn the_gateway_on_redis_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let fleet = Fleet::start(1, &[fixture.url()]).await?;
    assert_conforms(&fleet.endpoints()[0]).await
}

#[tokio::test]
async fn the_gateway_on_the_embedded_store_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let settings = Settings::toml(settings_toml("embedded", &[fixture.url()]));
    let gateway = Gateway::start("embedded", settings).await?;
    assert_conforms(&gateway.mcp_url("tools")).await
}

#[tokio::test]
async fn the_gateway_with_nothing_set_conforms() -> anyhow::Result<()> {
    let fixture = Fixture::start("conformance").await?;
    let url = fixture.url();
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{url:?}]\n"
    ));
    let gateway = Gateway::start("unset", settings).await?;
    assert_conforms(&gateway.mcp_url("tools")).await
}
