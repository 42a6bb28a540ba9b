//! Servers and clients of 2024-11-05: a session speaks the revision that its server chose, over whichever transport its
//! client comes, at every gateway of a fleet and in a group.

use mooring_tests::client::HttpClient;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::script::{Answers, run_client_for};
use mooring_tests::servers::{Server, older_everything_command, older_memory_command};
use mooring_tests::session::{McpSession, Opening, result_of};
use rmcp::model::ProtocolVersion;
use serde_json::{Value, json};

use crate::rmcp_client::RmcpSession;

const OLDEST: &str = "2024-11-05";

/// Three gateways in front of servers that speak 2024-11-05 alone, one that speaks every revision, and a group of all.
struct Scene {
    gateways: Vec<Gateway>,
    _servers: (Server, Server),
    _redis: Redis,
    _keys: FleetKeys,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let servers = tokio::try_join!(Server::older_everything_sse(), Server::everything("new"))?;
        let toml = format!(
            "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n\n[worker]\n{}\n\
             [[servers]]\nid = \"memory\"\nkind = \"stdio\"\ncommand = {:?}\n\n\
             [[servers]]\nid = \"everything\"\nkind = \"stdio\"\ncommand = {:?}\n\n\
             [[servers]]\nid = \"sse\"\nkind = \"sse\"\ninstances = [{:?}]\n\n\
             [[servers]]\nid = \"new\"\nkind = \"http\"\ninstances = [{:?}]\n\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"memory\", \"everything\", \"new\"]\n",
            redis.url(),
            keys.toml(),
            older_memory_command()?,
            older_everything_command()?,
            servers.0.sse_url(),
            servers.1.url(),
        );
        Ok(Self {
            gateways: Gateway::fleet(3, &Settings::toml(toml)).await?,
            _servers: servers,
            _redis: redis,
            _keys: keys,
        })
    }

    fn endpoints(&self, server: &str) -> Vec<String> {
        let gateways = self.gateways.iter();
        gateways.map(|gateway| gateway.mcp_url(server)).collect()
    }

    /// What an SDK client is told that makes these calls at the gateways in turn.
    async fn texts(
        &self,
        (script, sdk): (&str, &[&str]),
        server: &str,
        calls: &Value,
    ) -> anyhow::Result<Vec<String>> {
        let (endpoints, calls) = (self.endpoints(server), calls.to_string());
        let mut words = vec!["--calls", &calls];
        for endpoint in &endpoints {
            words.extend(["--url", endpoint]);
        }
        words.extend(sdk);
        let said: Answers = run_client_for(script, &words).await?;
        Ok(said.answers.into_iter().map(|answer| answer.text).collect())
    }
}

async fn check_sdk(sdk: (&str, &[&str])) -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let call = |tool: &str, arguments: Value| json!({"name": tool, "arguments": arguments});
    for (server, [memory, everything]) in [
        ("memory", ["", "-"]),
        ("everything", ["-", ""]),
        ("sse", ["-", ""]),
        ("all", ["memory__", "everything__"]),
    ] {
        let (mut calls, mut expected) = (Vec::new(), Vec::new());
        if memory != "-" {
            calls.push(call(
                &format!("{memory}search_nodes"),
                json!({"query": "nobody"}),
            ));
            expected.push("{\n  \"entities\": [],\n  \"relations\": []\n}".to_owned());
        }
        if everything != "-" {
            calls.push(call(&format!("{everything}add"), json!({"a": 1, "b": 2})));
            expected.push("The sum of 1 and 2 is 3.".to_owned());
            calls.push(call(&format!("{everything}echo"), json!({"message": "x"})));
            expected.push("Echo: x".to_owned());
        }
        // More calls than gateways, so that each gets some.
        let (calls, expected) = (vec![calls; 3].concat(), vec![expected; 3].concat());
        let told = scene.texts(sdk, server, &json!(calls)).await?;
        assert_eq!(told, expected, "{server}");
    }
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_calls_servers_of_2024_11_05() -> anyhow::Result<()> {
    check_sdk(("answers.py", &[])).await
}

#[tokio::test]
async fn the_typescript_sdk_v1_calls_servers_of_2024_11_05() -> anyhow::Result<()> {
    check_sdk(("answers.mjs", &["--sdk", "v1"])).await
}

#[tokio::test]
async fn the_typescript_sdk_v2_calls_servers_of_2024_11_05() -> anyhow::Result<()> {
    check_sdk(("answers.mjs", &["--sdk", "v2"])).await
}

/// The header names the revision that was chosen, or is absent, as that revision has it.
#[tokio::test]
async fn a_client_of_2024_11_05_is_served_over_streamable_http() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let client = HttpClient::default();
    for (server, tool) in [
        ("new", "echo"),
        ("memory", "search_nodes"),
        ("all", "new__echo"),
    ] {
        let opening = Opening {
            protocol_version: OLDEST.to_owned(),
            ..Opening::default()
        };
        let endpoints = scene.endpoints(server);
        let mut session = McpSession::open_with(&client, &endpoints, opening).await?;
        assert_eq!(
            session.initialize_result["protocolVersion"], OLDEST,
            "{server}"
        );
        let arguments = json!({"message": "x", "query": "x"});
        for names_revision in [true, false] {
            let params = json!({"name": tool, "arguments": arguments});
            let body = session.request_body("tools/call", params);
            let mut request = session.http_request(http::Method::POST, body.to_string().into())?;
            if !names_revision {
                request.headers_mut().remove("mcp-protocol-version");
            }
            let reply = client.send(request).await?;
            let exchange = mooring_tests::session::read_exchange(reply, &body).await?;
            assert_ne!(result_of(exchange.response)?["isError"], true, "{server}");
        }
        assert_eq!(session.delete().await?.status, 204);
    }
    Ok(())
}

/// It asks first whether the server knows 2026-07-28, and has to understand that it does not.
#[tokio::test]
async fn the_rmcp_client_falls_back_from_discovery_to_a_session() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    for (server, asked, chosen) in [
        ("new", ProtocolVersion::V_2025_11_25, "2025-11-25"),
        ("new", ProtocolVersion::V_2024_11_05, OLDEST),
        ("memory", ProtocolVersion::V_2025_11_25, OLDEST),
        ("all", ProtocolVersion::V_2025_06_18, "2025-03-26"),
    ] {
        let session = RmcpSession::open_auto(&scene.endpoints(server), asked).await?;
        assert_eq!(
            session.protocol_version().as_deref(),
            Some(chosen),
            "{server}"
        );
        let tool = match server {
            "new" => "echo",
            "memory" => "read_graph",
            _ => "new__echo",
        };
        let arguments = serde_json::Map::from_iter([("message".to_owned(), json!("x"))]);
        session.call(tool, arguments).await?;
        session.close().await?;
    }
    Ok(())
}

/// The same of the Python SDK.
#[tokio::test]
async fn the_python_sdk_falls_back_from_discovery_to_a_session() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    let calls = json!([{"name": "echo", "arguments": {"message": "x"}}]);
    let sdk = ("answers.py", ["--mode", "auto"]);
    let told = scene.texts((sdk.0, &sdk.1), "new", &calls).await?;
    assert_eq!(told, ["Echo: x"]);
    Ok(())
}
