//! The servers from the registries and the load balancer, driven directly: what the harness starts works.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::legacy::LegacySession;
use mooring_tests::nginx::Nginx;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::servers::{self, Server};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::stdio::StdioSession;
use serde_json::json;
use tempfile::TempDir;

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

/// For a client without capabilities: one that has roots is asked for them before anything is answered.
fn plain() -> Opening {
    Opening {
        capabilities: json!({}),
        ..Opening::default()
    }
}

#[tokio::test]
async fn the_reference_servers_answer_on_stdio() -> anyhow::Result<()> {
    let opening = plain();
    let directory = TempDir::new()?;
    let command = servers::filesystem_command(directory.path())?;
    let mut files = StdioSession::start_with(&command, &opening).await?;
    let path = directory.path().canonicalize()?.join("a.txt");
    files
        .call("write_file", json!({"path": path, "content": "written"}))
        .await?;
    assert_eq!(std::fs::read_to_string(&path)?, "written");

    let mut memory = StdioSession::start_with(&servers::memory_command()?, &opening).await?;
    let graph = memory.call("read_graph", json!({})).await?;
    assert_eq!(
        graph["structuredContent"],
        json!({"entities": [], "relations": []})
    );

    let command = servers::everything_command()?;
    let mut everything = StdioSession::start_with(&command, &opening).await?;
    let echoed = everything.call("echo", json!({"message": "m"})).await?;
    assert_eq!(echoed["content"][0]["text"], "Echo: m");
    Ok(())
}

#[tokio::test]
async fn the_servers_of_others_answer_over_sse() -> anyhow::Result<()> {
    let client = HttpClient::default();
    let everything = Server::everything_sse("a").await?;
    let mut session = LegacySession::open_at(&client, &everything.sse_url()).await?;
    let echoed = session.call("echo", json!({"message": "m"})).await?;
    assert_eq!(echoed["content"][0]["text"], "Echo: m");

    let python = Server::python_counting_sse("a").await?;
    let mut session = LegacySession::open_at(&client, &python.sse_url()).await?;
    assert_eq!(
        (session.increment().await?, session.increment().await?),
        (1, 2)
    );
    Ok(())
}

/// The page is the session's own, over each of the three transports.
#[tokio::test]
async fn playwright_keeps_a_page_for_each_session() -> anyhow::Result<()> {
    let client = HttpClient::default();
    let server = Server::playwright("a").await?;
    let plain = plain();
    let mut http = McpSession::open_with(&client, &[server.url()], plain.clone()).await?;
    let mut sse = LegacySession::open_with(&client, &server.sse_url(), &plain).await?;
    let output = TempDir::new()?;
    let command = servers::playwright_command(output.path())?;
    let mut stdio = StdioSession::start_with(&command, &plain).await?;

    let open = |title: &str| json!({"url": format!("data:text/html,<title>{title}</title>")});
    http.call("browser_navigate", open("page of http")).await?;
    sse.call("browser_navigate", open("page of sse")).await?;
    stdio
        .call("browser_navigate", open("page of stdio"))
        .await?;
    let title = json!({"function": "() => document.title"});
    for (expected, result) in [
        (
            "page of http",
            http.call("browser_evaluate", title.clone()).await?,
        ),
        (
            "page of sse",
            sse.call("browser_evaluate", title.clone()).await?,
        ),
        (
            "page of stdio",
            stdio.call("browser_evaluate", title).await?,
        ),
    ] {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains(expected), "{text}");
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
