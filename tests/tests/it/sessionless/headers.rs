//! What goes on to a server without sessions, and what comes back.

use std::sync::{Arc, Mutex};

use mooring_tests::client::STEP_WITHIN;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::wait::until_true;
use serde_json::json;

use super::{REVISION, call, discovered, gateway, request};
use crate::rig::store_commands;
use crate::scripted::{Exchange, Scripted, Seen};
use crate::small_server::{JSON, SmallServer, response, result};

/// A server that remembers what it gets.
async fn remembering() -> anyhow::Result<(SmallServer, Arc<Mutex<Vec<Seen>>>)> {
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let remembered = Arc::clone(&seen);
    let server = SmallServer::start(move |request| {
        remembered.lock().unwrap().push(request.clone());
        match request.method().as_str() {
            "server/discover" => discovered(request),
            "tools/list" => result(
                request,
                "",
                &json!({"resultType": "complete", "tools": [], "ttlMs": 1, "cacheScope": "public"}),
            ),
            "tools/call" => result(
                request,
                "",
                &json!({"resultType": "complete", "content": []}),
            ),
            _ => {
                let id = request.json()["id"].to_string();
                let error = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"none"}}}}"#
                );
                response("404 Not Found", JSON, "", &error)
            }
        }
    });
    Ok((server.await?, seen))
}

#[tokio::test]
async fn a_request_goes_on_with_its_headers_and_without_the_store() -> anyhow::Result<()> {
    let (server, seen) = remembering().await?;
    let gateway = gateway(&server, "era = \"modern\"\n").await?;
    let url = gateway.mcp_url("tools");
    let before = store_commands(&gateway).await?;
    let sent = call(7, "weather", &json!({"city": "Zürich"}))
        .header("mcp-param-city", "=?base64?WsO8cmljaA==?=")
        .header("mcp-session-id", "stray")
        .header("last-event-id", "stray");
    let (status, answer) = sent.answer(&url).await?;
    assert_eq!((status, &answer["id"]), (200, &json!(7)), "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(store_commands(&gateway).await?, before, "no store command");
    let calls: Vec<Seen> = {
        let seen = seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.method() == "tools/call")
            .cloned()
            .collect()
    };
    let [got] = calls.as_slice() else {
        anyhow::bail!("{calls:?}");
    };
    for (name, value) in [
        ("mcp-protocol-version", Some(REVISION)),
        ("mcp-method", Some("tools/call")),
        ("mcp-name", Some("weather")),
        ("mcp-param-city", Some("=?base64?WsO8cmljaA==?=")),
        ("mcp-session-id", None),
        ("last-event-id", None),
    ] {
        assert_eq!(got.header(name), value, "{name}");
    }
    assert_eq!(got.json()["params"]["arguments"], json!({"city": "Zürich"}));
    Ok(())
}

/// A gateway decides for each user who may have what a server offers to all.
#[tokio::test]
async fn what_a_server_offers_is_private_and_of_known_revisions() -> anyhow::Result<()> {
    let (server, _) = remembering().await?;
    let gateway = gateway(&server, "era = \"modern\"\n").await?;
    let url = gateway.mcp_url("tools");
    let (_, answer) = request(1, "server/discover", json!({}))
        .answer(&url)
        .await?;
    assert_eq!(
        answer["result"]["supportedVersions"],
        json!([REVISION]),
        "{answer}"
    );
    assert_eq!(answer["result"]["cacheScope"], "private", "{answer}");
    let (_, answer) = request(2, "tools/list", json!({})).answer(&url).await?;
    assert_eq!(answer["result"]["cacheScope"], "private", "{answer}");
    assert_eq!(answer["result"]["ttlMs"], 1, "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_request_whose_headers_say_something_else_is_refused() -> anyhow::Result<()> {
    let (server, seen) = remembering().await?;
    let gateway = gateway(&server, "era = \"modern\"\n").await?;
    let url = gateway.mcp_url("tools");
    for (name, value) in [
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", "tools/list"),
        ("mcp-name", "other"),
        ("mcp-name", "=?base64?%?="),
    ] {
        let sent = call(1, "a", &json!({})).header(name, value);
        let (status, answer) = sent.answer(&url).await?;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (400, &json!(-32020)),
            "{name}: {answer}"
        );
        assert_eq!(answer["id"], 1, "{answer}");
    }
    let (status, answer) = request(2, "no/method", json!({})).answer(&url).await?;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (404, &json!(-32601)),
        "{answer}"
    );
    let methods: Vec<String> = seen.lock().unwrap().iter().map(Seen::method).collect();
    assert!(!methods.contains(&"tools/call".to_owned()), "{methods:?}");
    Ok(())
}

/// The rules of access, the limit of requests and the figures are those of every request.
#[tokio::test]
async fn rules_and_limits_are_those_of_every_request() -> anyhow::Result<()> {
    let (server, seen) = remembering().await?;
    let rules = "era = \"modern\"\nallow = [{ users = [\"ada\"], tools = [\"may\"] }]\n";
    let toml = settings_toml("embedded", &[server.url()]) + rules;
    let settings = Settings::toml(toml)
        .users_by_header()
        .env("MOORING_LISTEN_REQUESTS_PER_USER_PER_MINUTE", "4");
    let gateway = Gateway::start("sessionless", settings).await?;
    let url = gateway.mcp_url("tools");
    let as_user = |user: &str, tool: &str| call(1, tool, &json!({})).header("x-mooring-user", user);
    let (status, answer) = as_user("ada", "may").answer(&url).await?;
    assert_eq!(
        (status, answer["result"].is_object()),
        (200, true),
        "{answer}"
    );
    let (_, refused) = as_user("ada", "may-not").answer(&url).await?;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let discovery = request(2, "server/discover", json!({})).header("x-mooring-user", "bob");
    let (status, unknown) = discovery.answer(&url).await?;
    assert_eq!(
        (status, &unknown["error"]["code"]),
        (404, &json!(-32004)),
        "{unknown}"
    );
    let called = seen
        .lock()
        .unwrap()
        .iter()
        .filter(|seen| seen.method() == "tools/call")
        .count();
    assert_eq!(called, 1, "the refused call is not sent");
    until_true(
        "the limit of requests is reached",
        STEP_WITHIN,
        async || {
            let reply = as_user("ada", "may").send(&url).await?;
            Ok(reply.status.as_u16() == 429)
        },
    )
    .await?;
    let labels = ["era=\"modern\"", "method=\"tools/call\""];
    let counted = gateway.metric("mooring_request_duration_seconds_count", &labels);
    assert!(counted.await? >= 2.0);
    Ok(())
}

/// MCP 2026-07-28, transports, "Cancellation": the server sees the connection close, before it answers and after.
#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() -> anyhow::Result<()> {
    let mut server = Scripted::start().await?;
    let toml = settings_toml("embedded", &[server.url()]) + "era = \"modern\"\n";
    let gateway = Gateway::start("sessionless", Settings::toml(toml)).await?;
    let url = gateway.mcp_url("tools");

    let asked = url.clone();
    let waiting = tokio::spawn(async move { call(1, "slow", &json!({})).send(&asked).await });
    let silent = server.next().await?;
    waiting.abort();
    abandoned(&silent).await?;

    let asked = url.clone();
    let reading = tokio::spawn(async move { call(2, "slow", &json!({})).send(&asked).await });
    let mut begun = server.next().await?;
    begun.begin_events().await?;
    begun
        .event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#)
        .await?;
    let mut reply = reading.await??;
    let message = reply.next_message().await?.unwrap_or_default();
    assert_eq!(message["method"], "notifications/message", "{message}");
    drop(reply);
    abandoned(&begun).await
}

async fn abandoned(exchange: &Exchange) -> anyhow::Result<()> {
    until_true(
        "the gateway closes the connection",
        STEP_WITHIN,
        async || Ok(exchange.is_abandoned()),
    )
    .await
}
