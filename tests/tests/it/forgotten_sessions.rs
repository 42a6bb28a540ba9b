//! Servers report a session that they have lost in many ways. Whichever it is, a ping decides, and the session moves on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::ensure;
use mooring_tests::client::HttpClient;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use serde_json::json;

use crate::recovery::{call, count_of, mark_of};
use crate::rig::kept;
use crate::scripted::{Seen, initialize_result};
use crate::small_server::{JSON, SmallServer, response, result};

/// How a server answers in a session that it does not know; `ID` stands for the request's id.
const ANSWERS: [(&str, &str, &str); 8] = [
    ("404 Not Found", "text/plain", "Session not found"),
    ("410 Gone", "text/plain", ""),
    (
        "422 Unprocessable Entity",
        "text/plain",
        "Unexpected message, expect initialize request",
    ),
    (
        "401 Unauthorized",
        "text/plain",
        "Unauthorized: Session not found",
    ),
    (
        "503 Service Unavailable",
        JSON,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}"#,
    ),
    (
        "200 OK",
        JSON,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}"#,
    ),
    (
        "200 OK",
        JSON,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"No valid session"}}"#,
    ),
    (
        "200 OK",
        "text/event-stream",
        "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32001,\"message\":\"Session not found\"}}\n\n",
    ),
];

/// A server that counts the calls of each session, and forgets all sessions when it is told to.
struct Forgetful {
    server: SmallServer,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    counts: HashMap<String, u64>,
    initializes: u64,
    pings: u64,
}

impl Forgetful {
    async fn start(unknown: (&'static str, &'static str, &'static str)) -> anyhow::Result<Self> {
        let memory: Arc<Mutex<Memory>> = Arc::default();
        let shared = Arc::clone(&memory);
        let answer = move |request: &Seen| answer(request, &mut shared.lock().unwrap(), unknown);
        let server = SmallServer::start(answer).await?;
        Ok(Self { server, memory })
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn forget(&self) {
        self.memory.lock().unwrap().counts.clear();
    }

    /// How many sessions were initialized, and how many pings came.
    fn seen(&self) -> (u64, u64) {
        let memory = self.memory.lock().unwrap();
        (memory.initializes, memory.pings)
    }
}

fn answer(request: &Seen, memory: &mut Memory, unknown: (&str, &str, &str)) -> String {
    let method = request.method();
    if method == "initialize" {
        memory.initializes += 1;
        let session = memory.initializes.to_string();
        let header = format!("mcp-session-id: session-{session}\r\n");
        memory.counts.insert(session, 0);
        return result(request, &header, &initialize_result());
    }
    memory.pings += u64::from(method == "ping");
    let id = request.json()["id"].to_string();
    let session = request.header("mcp-session-id").unwrap_or_default();
    let session = session.strip_prefix("session-").unwrap_or_default();
    let Some(count) = memory.counts.get_mut(session) else {
        let (status, content_type, body) = unknown;
        return response(status, content_type, "", &body.replace("ID", &id));
    };
    match method.as_str() {
        "tools/call" if request.body.contains("\"fail\"") => {
            let error = r#"{"code":-32000,"message":"the database session has expired"}"#;
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
            response("200 OK", JSON, "", &body)
        }
        "tools/call" => {
            *count += 1;
            let content = json!({"instance": "forgetful", "count": *count});
            let text = json!([{"type": "text", "text": content.to_string()}]);
            let content = json!({"content": text, "structuredContent": content});
            result(request, "", &content)
        }
        "tools/list" => result(request, "", &json!({"tools": []})),
        "ping" => result(request, "", &json!({})),
        _ => response("202 Accepted", JSON, "", ""),
    }
}

#[tokio::test]
async fn a_session_that_its_server_has_forgotten_is_replaced_however_it_says_so()
-> anyhow::Result<()> {
    for unknown in ANSWERS {
        let server = Forgetful::start(unknown).await?;
        let gateway = Gateway::start("forgotten", kept(&[server.url()])).await?;
        let endpoints = [gateway.mcp_url("tools")];
        let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
        for expected in 1..=2 {
            let exchange = call(&mut session, "increment").await?;
            assert_eq!(count_of(&exchange), Some(expected), "{unknown:?}");
        }
        server.forget();
        let exchange = call(&mut session, "increment").await?;
        assert_eq!(count_of(&exchange), Some(1), "{unknown:?}: {exchange:?}");
        assert!(mark_of(&exchange).is_some(), "{unknown:?}: {exchange:?}");
        let exchange = call(&mut session, "increment").await?;
        assert_eq!(count_of(&exchange), Some(2), "{unknown:?}: {exchange:?}");
        assert_eq!(server.seen().0, 2, "{unknown:?}: one new upstream session");
    }
    Ok(())
}

#[tokio::test]
async fn a_pooled_session_that_its_server_has_forgotten_is_replaced() -> anyhow::Result<()> {
    for unknown in ANSWERS {
        let server = Forgetful::start(unknown).await?;
        let toml = format!(
            "[store]\nurl = \"embedded\"\n[[servers]]\nid = \"tools\"\naffinity = \"off\"\ninstances = [{:?}]\n",
            server.url()
        );
        let gateway = Gateway::start("forgotten", Settings::toml(toml)).await?;
        let endpoints = [gateway.mcp_url("tools")];
        let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
        assert_eq!(count_of(&call(&mut session, "increment").await?), Some(1));
        server.forget();
        let exchange = call(&mut session, "increment").await?;
        assert_eq!(count_of(&exchange), Some(1), "{unknown:?}: {exchange:?}");
    }
    Ok(())
}

/// The tool's own error, which has the code of an unknown session and its words: a ping shows that the session lives.
#[tokio::test]
async fn an_error_that_only_looks_like_a_forgotten_session_is_passed_on() -> anyhow::Result<()> {
    let server = Forgetful::start(ANSWERS[0]).await?;
    let gateway = Gateway::start("forgotten", kept(&[server.url()])).await?;
    let endpoints = [gateway.mcp_url("tools")];
    let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
    let failed = session
        .request("tools/call", json!({"name": "fail", "arguments": {}}))
        .await?;
    ensure!(failed.response["error"]["code"] == -32000, "{failed:?}");
    assert_eq!(count_of(&call(&mut session, "increment").await?), Some(1));
    assert_eq!(server.seen(), (1, 1), "one ping, and no other session");
    Ok(())
}
