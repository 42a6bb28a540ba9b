//! Servers of other kinds, and servers that ask: what they ask is refused by name, and nothing of it reaches the client.

use std::sync::{Arc, Mutex};

use mooring_tests::code::USER;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet::settings_toml;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::Sessionless;
use crate::owned::rig::unique;
use crate::scripted::initialize_result;
use crate::small_server::{JSON, SmallServer, response, result};

/// The program runs at one of the gateways.
#[tokio::test]
async fn programs_count_on_over_every_gateway() -> anyhow::Result<()> {
    let command = stdio_command(&unique("continuity"), None, &[])?;
    count_on(&format!("kind = \"stdio\"\ncommand = {command:?}")).await
}

/// One of the gateways has the connection.
#[tokio::test]
async fn servers_of_the_older_transport_count_on_over_every_gateway() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let instance = fixture.sse_url();
    count_on(&format!("kind = \"sse\"\ninstances = [{instance:?}]")).await
}

/// Counts at three gateways in turn, at a server of this kind.
async fn count_on(server: &str) -> anyhow::Result<()> {
    let (redis, fleet_keys) = (Redis::start().await?, FleetKeys::new()?);
    let toml = format!(
        "[store]\nurl = {:?}\n\n[worker]\n{}\n[[servers]]\nid = \"tools\"\n{server}\ncontinuity = \"principal\"\n",
        redis.url(),
        fleet_keys.toml(),
    );
    let gateways = Gateway::fleet(3, &Settings::toml(toml).users_by_header()).await?;
    let endpoints = gateways.iter().map(|gateway| gateway.mcp_url("tools"));
    let mut ada = Sessionless::at(endpoints.collect()).header(USER, "ada");
    for expected in 1..=6 {
        assert_eq!(ada.increment().await?.number, expected);
    }
    Ok(())
}

/// What a server has seen of a client: its `initialize` params, a request, and its answers.
type Seen = Arc<Mutex<Vec<Value>>>;

/// A server that asks and logs before it answers a call.
async fn asking(seen: &Seen) -> anyhow::Result<SmallServer> {
    let seen = Arc::clone(seen);
    SmallServer::start(move |request| {
        let message = request.json();
        if let Ok(mut seen) = seen.lock() {
            seen.push(message.clone());
        }
        match request.method().as_str() {
            "initialize" => result(request, "mcp-session-id: one\r\n", &initialize_result()),
            "tools/call" => {
                let id = &message["id"];
                let events = [
                    json!({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": {"message": "Who?"}}),
                    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "quiet"}}),
                    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "loud"}}),
                    json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}),
                ];
                let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
                response("200 OK", "text/event-stream", "", &events)
            }
            "prompts/get" => {
                let id = &message["id"];
                let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "none"}});
                response("200 OK", JSON, "", &error.to_string())
            }
            _ => response("202 Accepted", JSON, "", ""),
        }
    })
    .await
}

#[tokio::test]
async fn what_a_server_asks_is_refused_and_does_not_reach_the_client() -> anyhow::Result<()> {
    let seen = Seen::default();
    let server = asking(&seen).await?;
    let settings = settings_toml("embedded", &[server.url()]) + "continuity = \"header\"\n";
    let gateway = Gateway::start("asking", Settings::toml(settings)).await?;
    let mut client = Sessionless::at(vec![gateway.mcp_url("tools")]);
    client.meta = json!({"io.modelcontextprotocol/logLevel": "warning", "progressToken": "p"});
    let called = client.call("a", json!({"x": 1})).await?;
    assert_eq!(called.response["result"]["resultType"], "complete");
    let logged: Vec<&Value> = called
        .before
        .iter()
        .map(|message| &message["params"]["data"])
        .collect();
    assert_eq!(
        logged,
        ["loud"],
        "as loud as the client asked, and no request"
    );

    let saw = |which: &dyn Fn(&Value) -> bool| {
        let seen = seen.lock().expect("what was seen");
        seen.iter().find(|message| which(message)).cloned()
    };
    wait::until_true(
        "the server to be refused",
        wait::STARTED_WITHIN,
        async || Ok(saw(&|message| message["id"] == 7).is_some()),
    )
    .await?;
    let refused = saw(&|message| message["id"] == 7).expect("an answer");
    let error = refused["error"]["message"].as_str().expect("an error");
    assert!(error.starts_with("elicitation/create:"), "{error}");

    let initialized = saw(&|message| message["method"] == "initialize").expect("initialize");
    let params = &initialized["params"];
    assert_eq!(params["clientInfo"]["name"], "continuity");
    assert_eq!(
        params["capabilities"],
        json!({}),
        "what it would ask is not offered"
    );
    let called = saw(&|message| message["method"] == "tools/call").expect("a call");
    let meta = called["params"]["_meta"].as_object().expect("_meta");
    assert_eq!(meta.keys().collect::<Vec<_>>(), ["progressToken"]);
    Ok(())
}

/// The server lets its client come back for the answer. A client without sessions cannot, so the gateway does.
#[tokio::test]
async fn a_reply_that_is_given_later_is_fetched_for_the_client() -> anyhow::Result<()> {
    let called: Arc<Mutex<Option<Value>>> = Arc::default();
    let id = Arc::clone(&called);
    let server = SmallServer::start(move |request| {
        let events = "text/event-stream";
        if request.header("last-event-id") == Some("e1") {
            let id = id.lock().expect("the call").clone();
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}});
            return response("200 OK", events, "", &format!("data: {answer}\n\n"));
        }
        match request.method().as_str() {
            "initialize" => result(request, "mcp-session-id: one\r\n", &initialize_result()),
            "tools/call" => {
                *id.lock().expect("the call") = Some(request.json()["id"].clone());
                response("200 OK", events, "", "id: e1\nretry: 10\ndata: \n\n")
            }
            _ => response("202 Accepted", JSON, "", ""),
        }
    })
    .await?;
    let settings = settings_toml("embedded", &[server.url()]) + "continuity = \"header\"\n";
    let gateway = Gateway::start("later", Settings::toml(settings)).await?;
    let mut client = Sessionless::at(vec![gateway.mcp_url("tools")]);
    let answered = client.call("a", json!({})).await?;
    assert_eq!(
        answered.response["result"]["resultType"], "complete",
        "{answered:?}"
    );
    assert!(answered.before.is_empty(), "{answered:?}");
    Ok(())
}

/// What only sessions have is unknown without one, with the status that says so.
#[tokio::test]
async fn methods_of_sessions_are_unknown() -> anyhow::Result<()> {
    let seen = Seen::default();
    let server = asking(&seen).await?;
    let settings = settings_toml("embedded", &[server.url()]) + "continuity = \"header\"\n";
    let gateway = Gateway::start("methods", Settings::toml(settings)).await?;
    let mut client = Sessionless::at(vec![gateway.mcp_url("tools")]);
    for (method, params) in [
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "info"})),
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("subscriptions/listen", json!({"notifications": {}})),
        // That one the server itself does not know.
        ("prompts/get", json!({"name": "a"})),
    ] {
        let body = client.body(method, params);
        let reply = client.send(&body).await?;
        assert_eq!(reply.status, 404, "{method}");
        assert_eq!(reply.json().await?["error"]["code"], -32601, "{method}");
    }
    let seen = seen.lock().expect("what was seen");
    let forwarded = [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "subscriptions/listen",
    ];
    assert!(
        !seen
            .iter()
            .any(|message| forwarded.iter().any(|method| message["method"] == *method))
    );
    Ok(())
}
