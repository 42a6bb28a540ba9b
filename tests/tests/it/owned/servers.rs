//! Servers of others behind three gateways: each keeps its state through any of them, in one connection.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::servers::{Server, filesystem_command, memory_command};
use mooring_tests::session::{McpSession, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::rig::{GONE_WITHIN, Shape, goes_on, owned_toml, stdio_toml};
use crate::recovery::counted;

/// Three gateways in front of one server of somebody else's.
struct Behind {
    gateways: Vec<Gateway>,
    endpoints: Vec<String>,
    client: HttpClient,
    _redis: Redis,
    _keys: FleetKeys,
}

impl Behind {
    async fn start(tools: &str, server: &str) -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let shape = Shape {
            server,
            ..Shape::default()
        };
        let toml = owned_toml(&redis, &keys, tools, &shape);
        let gateways = Gateway::fleet(3, &Settings::toml(toml)).await?;
        let endpoints = gateways.iter().map(|gateway| gateway.mcp_url("tools"));
        Ok(Self {
            endpoints: endpoints.collect(),
            gateways,
            client: HttpClient::default(),
            _redis: redis,
            _keys: keys,
        })
    }

    async fn open(&self) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &self.endpoints).await
    }

    /// Asserts that each gateway was asked, and that those which do not own passed on.
    async fn assert_spread(&self, sessions: u64) -> anyhow::Result<()> {
        for gateway in &self.gateways {
            let requests = gateway
                .metric(
                    "mooring_request_duration_seconds_count",
                    &["server=\"tools\""],
                )
                .await?;
            assert!(requests > 0.0, "each gateway was asked");
        }
        let labels = ["outcome=\"served\""];
        let forwards = counted(
            &self.gateways,
            "mooring_forward_duration_seconds_count",
            &labels,
        )
        .await?;
        assert!(
            forwards >= 2 * sessions,
            "what is another's was passed on: {forwards}"
        );
        Ok(())
    }
}

fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn server_filesystem_is_one_process_for_each_session() -> anyhow::Result<()> {
    let root = TempDir::with_prefix("mooring-files-")?;
    let root_path = root.path().canonicalize()?;
    let command = filesystem_command(&root_path)?;
    let behind = Behind::start(&stdio_toml(&command), "").await?;
    let (mut one, mut two) = (behind.open().await?, behind.open().await?);
    for number in 0..6 {
        let file = root_path
            .join(format!("{number}.txt"))
            .display()
            .to_string();
        let text = format!("text {number}");
        one.call("write_file", json!({"path": file, "content": text}))
            .await?;
        let read = two.call("read_text_file", json!({"path": file})).await?;
        assert_eq!(text_of(&read), text);
    }
    let directory = root_path.display().to_string();
    // The interpreter and the program are one process each.
    assert_eq!(
        started_with(&directory)?.len(),
        2,
        "one child for each session"
    );
    behind.assert_spread(2).await?;
    for session in [&mut one, &mut two] {
        assert_eq!(session.delete().await?.status, 204);
    }
    wait::until_true("the end of both", GONE_WITHIN, async || {
        Ok(started_with(&directory)?.is_empty())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn server_memory_keeps_its_graph_through_any_worker() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-memory-")?;
    let file = directory.path().join("memory.json").display().to_string();
    let environment = format!("env = {{ MEMORY_FILE_PATH = {file:?} }}");
    let mut command = memory_command()?;
    // It looks at no argument: this one only tells its processes from those of others.
    command.push(file.clone());
    let behind = Behind::start(&stdio_toml(&command), &environment).await?;
    let mut session = behind.open().await?;
    for number in 0..6 {
        let entity =
            json!({"name": format!("entity-{number}"), "entityType": "t", "observations": ["o"]});
        session
            .call("create_entities", json!({"entities": [entity]}))
            .await?;
        let graph = session.call("read_graph", json!({})).await?;
        let entities = graph["structuredContent"]["entities"]
            .as_array()
            .map(Vec::len);
        assert_eq!(entities, Some(number + 1), "{graph}");
    }
    assert_eq!(started_with(&file)?.len(), 1, "one child for the session");
    behind.assert_spread(1).await?;
    assert_eq!(session.delete().await?.status, 204);
    wait::until_true("its end", GONE_WITHIN, async || {
        Ok(started_with(&file)?.is_empty())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_legacy_server_keeps_one_stream_for_each_session() -> anyhow::Result<()> {
    let fixture = Fixture::start("legacy").await?;
    let tools = format!("kind = \"sse\"\ninstances = [{:?}]", fixture.sse_url());
    let behind = Behind::start(&tools, "").await?;
    let (mut one, mut two) = (behind.open().await?, behind.open().await?);
    goes_on(&mut one, 1, 6).await?;
    goes_on(&mut two, 1, 3).await?;
    goes_on(&mut one, 7, 3).await?;
    let stats = fixture.stats().await?;
    assert_eq!((stats.initializes, stats.sessions_live), (2, 2));
    behind.assert_spread(2).await?;
    assert_eq!(one.delete().await?.status, 204);
    wait::until_true("the end of its stream", GONE_WITHIN, async || {
        Ok(fixture.stats().await?.sessions_live == 1)
    })
    .await?;
    goes_on(&mut two, 4, 3).await?;
    Ok(())
}

#[tokio::test]
async fn server_everything_over_its_legacy_stream_subscribes_and_tells_through_any_worker()
-> anyhow::Result<()> {
    let server = Server::everything_sse("everything").await?;
    let tools = format!("kind = \"sse\"\ninstances = [{:?}]", server.sse_url());
    let behind = Behind::start(&tools, "").await?;
    let mut session = behind.open().await?;
    for number in 0..6 {
        let message = format!("m{number}");
        let echoed = session.call("echo", json!({"message": message})).await?;
        assert_eq!(text_of(&echoed), format!("Echo: {message}"));
    }
    let params = json!({
        "name": "trigger-long-running-operation",
        "arguments": {"duration": 1, "steps": 3},
        "_meta": {"progressToken": "p"},
    });
    let exchange = session.request("tools/call", params).await?;
    let progress = exchange.before.iter();
    let progress = progress.filter(|message| message["method"] == "notifications/progress");
    assert_eq!(progress.count(), 3, "{exchange:?}");
    result_of(exchange.response)?;
    behind.assert_spread(1).await
}
