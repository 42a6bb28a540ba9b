//! Messages at and above the limit for one: the same through every gateway, and a server that sends one keeps its state.

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use serde_json::{Value, json};
use tempfile::TempDir;

/// `upstream.event_bytes_max`.
const LIMIT: usize = 20_000;

/// A server on stdio whose answers have the length that the call names, in bytes, and a count. With `last`, the id is the
/// last member of the answer; with `broken`, the answer is no valid JSON.
const SERVER: &str = r#"
import json, sys
count = 0
def send(message, id, last):
    head = {"jsonrpc": "2.0"}
    whole = {**message, **head, "id": id} if last else {**head, "id": id, **message}
    return json.dumps(whole)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    id, method = request["id"], request["method"]
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "long", "version": "1"}}
        print(send({"result": result}, id, False), flush=True)
    elif method == "tools/call":
        count += 1
        arguments = request["params"]["arguments"]
        last = arguments.get("last", False)
        def answer(pad):
            result = {"content": [{"type": "text", "text": "x" * pad}], "structuredContent": {"count": count}}
            return send({"result": result}, id, last)
        text = answer(0)
        text = answer(max(0, arguments["bytes"] - len(text)))
        if arguments.get("broken"):
            text = text.replace('"count": ', '"count": NaN, "other": ')
        print(text, flush=True)
    else:
        print(send({"result": {}}, id, False), flush=True)
"#;

async fn call(session: &mut McpSession, arguments: Value) -> anyhow::Result<Value> {
    let params = json!({"name": "answer", "arguments": arguments});
    Ok(session.request("tools/call", params).await?.response)
}

#[tokio::test]
async fn a_message_of_a_stdio_server_may_have_any_length_and_only_its_call_fails()
-> anyhow::Result<()> {
    let shared = TempDir::new()?;
    let command = ["python3", "-c", SERVER];
    let toml = format!(
        "[store]\nurl = \"embedded\"\n[upstream]\nevent_bytes_max = {LIMIT}\n\
         [[servers]]\nid = \"long\"\nkind = \"stdio\"\ncommand = {command:?}\n"
    );
    let settings = Settings::toml(toml).state_home(shared.path());
    let gateways = Gateway::fleet(2, &settings).await?;
    let endpoints: Vec<String> = gateways.iter().map(|one| one.mcp_url("long")).collect();
    let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
    let mut count = 0;
    // Two calls each: one at the owner, one that is forwarded.
    for bytes in [0, LIMIT - 1, LIMIT].repeat(2) {
        count += 1;
        let response = call(&mut session, json!({"bytes": bytes})).await?;
        let counted = &response["result"]["structuredContent"]["count"];
        assert_eq!(counted, count, "{bytes}: {response}");
    }
    for arguments in [
        json!({"bytes": LIMIT + 1}),
        json!({"bytes": 40 * LIMIT}),
        json!({"bytes": 40 * LIMIT, "last": true}),
        json!({"bytes": 0, "broken": true}),
    ] {
        for _ in &gateways {
            count += 1;
            let response = call(&mut session, arguments.clone()).await?;
            let error = &response["error"];
            assert_eq!(error["code"], -32011, "{arguments}: {response}");
            let message = error["message"].as_str().unwrap_or_default();
            let what = match arguments["broken"].is_null() {
                true => format!("limit {LIMIT}"),
                false => "no valid JSON".to_owned(),
            };
            assert!(message.contains(&what), "{message}");
        }
    }
    let response = call(&mut session, json!({"bytes": 0})).await?;
    let result = &response["result"];
    assert_eq!(
        result["structuredContent"]["count"],
        count + 1,
        "{response}"
    );
    assert!(result["_meta"].is_null(), "nothing was lost: {response}");
    Ok(())
}

#[tokio::test]
async fn an_event_of_an_sse_server_may_have_any_length_and_only_its_call_fails()
-> anyhow::Result<()> {
    let (shared, fixture) = (TempDir::new()?, Fixture::start("long").await?);
    let instance = fixture.sse_url();
    let toml = format!(
        "[store]\nurl = \"embedded\"\n[upstream]\nevent_bytes_max = {LIMIT}\n\
         [[servers]]\nid = \"long\"\nkind = \"sse\"\ninstances = [{instance:?}]\n"
    );
    let settings = Settings::toml(toml).state_home(shared.path());
    let gateways = Gateway::fleet(2, &settings).await?;
    let endpoints: Vec<String> = gateways.iter().map(|one| one.mcp_url("long")).collect();
    let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
    // In turn at the owner and forwarded.
    for count in 1..=4 {
        for bytes in [LIMIT, 40 * LIMIT] {
            let params = json!({"name": "big", "arguments": {"bytes": bytes}});
            let response = session.request("tools/call", params).await?.response;
            let error = &response["error"];
            assert_eq!(error["code"], -32011, "{bytes}: {response}");
            let message = error["message"].as_str().unwrap_or_default();
            assert!(message.contains(&format!("limit {LIMIT}")), "{message}");
        }
        let result = session.call("increment", json!({})).await?;
        assert_eq!(result["structuredContent"]["count"], count, "{result}");
        assert!(result["_meta"].is_null(), "nothing was lost: {result}");
    }
    Ok(())
}
