//! Batches of clients of 2025-03-26 and before: each message is served as if it had been posted alone, and each request gets
//! one answer.

use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};

use crate::rig::{initialize_params, kept, post_text, refusal};

/// A session of a client that may send batches.
struct Scene {
    session: McpSession,
    client: HttpClient,
    fixture: Fixture,
    gateway: Gateway,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let fixture = Fixture::start("one").await?;
        let gateway = Gateway::start("alone", kept(&[fixture.url()])).await?;
        let client = HttpClient::default();
        let opening = Opening {
            protocol_version: "2025-03-26".to_owned(),
            ..Opening::default()
        };
        let endpoints = [gateway.mcp_url("tools")];
        Ok(Self {
            session: McpSession::open_with(&client, &endpoints, opening).await?,
            client,
            fixture,
            gateway,
        })
    }

    async fn post(&mut self, batch: &Value) -> anyhow::Result<Reply> {
        post_text(&self.client, &mut self.session, batch.to_string()).await
    }
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn notification() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
}

async fn messages(mut reply: Reply) -> anyhow::Result<Vec<Value>> {
    let mut messages = Vec::new();
    while let Some(message) = reply.next_message().await? {
        messages.push(message);
    }
    Ok(messages)
}

#[tokio::test]
async fn every_request_of_a_batch_is_answered_once_and_in_order() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let batch = json!([
        notification(),
        call(11, "increment", json!({})),
        {"jsonrpc": "2.0", "id": "ping", "method": "ping"},
        notification(),
        call(12, "progress", json!({"n": 2, "step_ms": 1})),
        {"jsonrpc": "2.0", "id": 13, "method": "no/such/method"},
        call(14, "increment", json!({})),
        notification(),
    ]);
    let reply = scene.post(&batch).await?;
    assert_eq!(reply.status, 200);
    assert!(reply.is_event_stream());
    let answers = messages(reply).await?;
    let answers: Vec<&Value> = answers
        .iter()
        .filter(|message| message.get("id").is_some())
        .collect();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(json!(ids), json!([11, "ping", 12, 13, 14]));
    assert_eq!(answers[0]["result"]["structuredContent"]["count"], 1);
    assert_eq!(answers[3]["error"]["code"], -32601);
    assert_eq!(answers[4]["result"]["structuredContent"]["count"], 2);
    Ok(())
}

/// The stream of a batch carries the question, and the answer comes in a POST of its own.
#[tokio::test]
async fn a_call_of_a_batch_may_ask_its_client() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let batch = json!([
        call(21, "ask", json!({"message": "?", "secret": "s"})),
        call(22, "increment", json!({})),
    ]);
    let mut reply = scene.post(&batch).await?;
    let mut ids = Vec::new();
    while let Some(message) = reply.next_message().await? {
        if message["method"] == "elicitation/create" {
            let content = json!({"action": "accept", "content": {"answer": "a"}});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": content});
            assert_eq!(scene.session.post(&answer).await?.status, 202);
        } else if message.get("result").is_some() {
            ids.push(message["id"].clone());
        }
    }
    assert_eq!(ids, [json!(21), json!(22)]);
    Ok(())
}

#[tokio::test]
async fn a_batch_that_asks_nothing_is_accepted() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let batch = json!([notification(), notification()]);
    assert_eq!(scene.post(&batch).await?.status, 202);
    Ok(())
}

#[tokio::test]
async fn a_batch_that_cannot_be_served_whole_is_not_served_at_all() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let one = call(31, "increment", json!({}));
    let initialize =
        json!({"jsonrpc": "2.0", "id": 32, "method": "initialize", "params": initialize_params()});
    let table = [
        ("an empty batch", json!([])),
        ("too many messages", json!(vec![one.clone(); 65])),
        ("what is no message", json!([one, 7])),
        ("an initialize", json!([one, initialize])),
        ("a batch in a batch", json!([one, [one]])),
    ];
    for (what, batch) in table {
        let reply = scene.post(&batch).await?;
        assert_eq!(
            refusal(reply).await?,
            (http::StatusCode::BAD_REQUEST, -32600),
            "{what}"
        );
    }
    // A client of a later revision may send none, as ever.
    let body = json!([one]).to_string();
    let mut request = scene
        .session
        .http_request(http::Method::POST, body.into())?;
    let later = http::HeaderValue::from_static("2025-06-18");
    request.headers_mut().insert("mcp-protocol-version", later);
    let reply = scene.client.send(request).await?;
    assert_eq!(
        refusal(reply).await?,
        (http::StatusCode::BAD_REQUEST, -32600)
    );
    // Nor is one served whose session is over.
    let mut gone = scene
        .session
        .fork(&scene.client, &[scene.gateway.mcp_url("tools")]);
    assert_eq!(scene.session.delete().await?.status, 204);
    let reply = post_text(&scene.client, &mut gone, json!([one]).to_string()).await?;
    assert_eq!(refusal(reply).await?.0, 404);
    let calls = scene.fixture.stats().await?.calls_of("increment");
    assert_eq!(calls, 0);
    Ok(())
}
