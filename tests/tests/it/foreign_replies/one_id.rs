//! Clients that use one id for every request: each request gets its own reply.

use std::collections::HashMap;
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::session::{McpSession, read_exchange};
use serde_json::json;

/// A server over standard input that answers each call in its own time, whatever is cancelled.
const SLOW_SERVER: &str = r#"
import json, sys, threading, time
lock = threading.Lock()
def say(message):
    with lock:
        print(json.dumps(message), flush=True)
def answer(message):
    arguments = message["params"]["arguments"]
    time.sleep(arguments["seconds"])
    content = [{"type": "text", "text": arguments["text"]}]
    say({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}})
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}}, "serverInfo": {"name": "slow", "version": "1"}}})
    elif method == "tools/call":
        threading.Thread(target=answer, args=(message,), daemon=True).start()
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [
            {"name": "wait", "inputSchema": {"type": "object"}}]}})
    elif "id" in message:
        say({"jsonrpc": "2.0", "id": message["id"], "result": {}})
"#;

/// Some clients give every request the id 1. After a cancellation the answer to the earlier call may still come.
#[tokio::test]
async fn a_client_that_numbers_every_request_1_gets_its_own_replies() -> anyhow::Result<()> {
    let python = paths::tool("python")?;
    let command = json!([python, "-c", SLOW_SERVER]).to_string();
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"serial\"\nkind = \"stdio\"\ncommand = {command}\n\
         [[servers]]\nid = \"parallel\"\nkind = \"stdio\"\nconcurrency = \"parallel\"\ncommand = {command}\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"serial\"]\n"
    ));
    let gateway = Gateway::start("ones", settings).await?;
    let client = HttpClient::default();
    let tools = HashMap::from([
        ("serial", "wait"),
        ("parallel", "wait"),
        ("all", "serial__wait"),
    ]);
    for (server, tool) in tools {
        let mut session = McpSession::open(&client, &[gateway.mcp_url(server)]).await?;
        let call = |text: &str, seconds: f64| {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
                {"name": tool, "arguments": {"text": text, "seconds": seconds}}})
        };
        let mut slow = session.fork(&client, &[gateway.mcp_url(server)]);
        let slow_call = call("old", 3.0);
        let waiting = tokio::spawn(async move { slow.post(&slow_call).await });
        // The server has it.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(session.post(&cancel).await?.status, 202, "{server}");
        let next = call("new", 2.5);
        let reply = session.post(&next).await?;
        let answer = read_exchange(reply, &next).await?.response;
        assert_eq!(
            answer["result"]["content"][0]["text"], "new",
            "{server}: {answer}"
        );
        // Two requests with one id at a time, of which each gets its own reply.
        if server == "parallel" {
            let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
            let both = call("both", 1.0);
            let mut other = session.fork(&client, &[gateway.mcp_url(server)]);
            let (called, listed) = tokio::try_join!(session.post(&both), other.post(&list))?;
            let listed = read_exchange(listed, &list).await?.response;
            assert_eq!(listed["result"]["tools"][0]["name"], "wait", "{listed}");
            let called = read_exchange(called, &both).await?.response;
            assert_eq!(called["result"]["content"][0]["text"], "both", "{called}");
        }
        drop(waiting.await?);
    }
    Ok(())
}
