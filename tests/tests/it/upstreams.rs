//! The servers from the registries and the load balancer, driven directly: what the harness starts works.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::nginx::Nginx;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::servers::Server;
use mooring_tests::session::McpSession;
use serde_json::json;

#[tokio::test]
async fn the_python_server_counts_per_session() -> anyhow::Result<()> {
    let server = Server::python_counting("a").await?;
    let client = HttpClient::default();
    let mut first = McpSession::open(&client, &[server.url()]).await?;
    let mut second = McpSession::open(&client, &[server.url()]).await?;
    assert_eq!(first.increment().await?, 1);
    assert_eq!(first.increment().await?, 2);
    assert_eq!(second.increment().await?, 1);
    Ok(())
}

#[tokio::test]
async fn server_everything_toggles_per_session() -> anyhow::Result<()> {
    let server = Server::everything("a").await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[server.url()]).await?;
    for expected in ["Started", "Stopped", "Started"] {
        let result = session.call("toggle-simulated-logging", json!({})).await?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with(expected), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn nginx_sends_each_request_to_the_next_upstream() -> anyhow::Result<()> {
    let (first, second) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let nginx = Nginx::start(&[first.port(), second.port()]).await?;
    let client = HttpClient::default();
    let mut instances = Vec::new();
    for _ in 0..4 {
        let stats = client.get(&nginx.url("/stats")).await?.json().await?;
        instances.push(stats["instance"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(
        instances.iter().filter(|instance| *instance == "a").count(),
        2,
        "{instances:?}"
    );
    assert_eq!(
        instances.iter().filter(|instance| *instance == "b").count(),
        2,
        "{instances:?}"
    );
    Ok(())
}

#[tokio::test]
async fn redis_keeps_its_data_over_a_restart_on_the_same_port() -> anyhow::Result<()> {
    let mut redis = Redis::start_with(Module::Absent, &[]).await?;
    redis.cli(&["SET", "key", "value"])?;
    redis.stop_server().await?;
    assert!(redis.cli(&["PING"]).is_err());
    redis.restart().await?;
    assert_eq!(redis.cli(&["GET", "key"])?, "value");
    Ok(())
}
